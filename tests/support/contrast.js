(() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const light = colour => {
    canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3).map(each => {
      const share = each / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = node => {
    for (; node; node = node.parentElement) {
      const colour = getComputedStyle(node).backgroundColor;
      if (!colour.endsWith(", 0)")) return colour;
    }
    return "white";
  };
  const texts = [...document.querySelectorAll("body *")].filter(node => !(node instanceof SVGElement) &&
    node.checkVisibility() && [...node.childNodes].some(child => child.nodeType === 3 && child.data.trim()));
  return Math.min(...texts.map(node => {
    const [one, other] = [light(getComputedStyle(node).color), light(behind(node))].sort((a, b) => b - a);
    return (one + 0.05) / (other + 0.05);
  }));
})()