// @ts-check
/**
 * Make what is on the page into what the answer says by changing only what differs, so that focus,
 * unfolded rows, a selection and the place scrolled to stay where they are.
 */

/**
 * Give `place` the content of `html`.
 * @param {Element} place
 * @param {string} html
 */
export function morph(place, html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  children(place, template.content);
}

/**
 * @param {Node} from
 * @param {Node} to
 */
function children(from, to) {
  const wanted = [...to.childNodes];
  wanted.forEach((node, place) => {
    const there = from.childNodes[place];
    if (there === undefined) from.appendChild(node);
    else if (!alike(there, node)) from.replaceChild(node, there);
    else if (there instanceof Element && node instanceof Element) {
      attributes(there, node);
      children(there, node);
    } else if (there.nodeValue !== node.nodeValue) there.nodeValue = node.nodeValue;
  });
  while (from.childNodes.length > wanted.length) from.lastChild?.remove();
}

/**
 * @param {Node} there
 * @param {Node} node
 */
function alike(there, node) {
  return there.nodeType === node.nodeType && there.nodeName === node.nodeName;
}

/**
 * @param {Element} from
 * @param {Element} to
 */
function attributes(from, to) {
  for (const { name, value } of to.attributes) {
    if (from.getAttribute(name) !== value) from.setAttribute(name, value);
  }
  for (const { name } of [...from.attributes]) {
    // Whether a row is unfolded is the reader's to say.
    if (!to.hasAttribute(name) && name !== "open") from.removeAttribute(name);
  }
}
