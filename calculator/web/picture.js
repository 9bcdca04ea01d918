// @ts-check
/** A drawn picture in dots, for programs that take no SVG. */

/** Dots for each unit of the drawing, so that it is sharp on any screen. */
const DENSITY = 2;

/**
 * @param {string} svg  a whole document, with its width and height
 * @returns {Promise<Blob>}
 */
export async function inDots(svg) {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = image.naturalWidth * DENSITY;
  canvas.height = image.naturalHeight * DENSITY;
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve, reject) => {
    canvas.toBlob((blob) => {
      if (blob) resolve(blob);
      else reject(new Error("this browser makes no picture of it"));
    }, "image/png");
  });
}
