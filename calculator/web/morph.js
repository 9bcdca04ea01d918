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
  let there = from.firstChild;
  for (const node of wanted) {
    const next = there?.nextSibling ?? null;
    if (there === null) from.appendChild(node);
    else if (!alike(there, node)) from.replaceChild(node, there);
    else if (there instanceof Element && node instanceof Element) {
      // Most is as it was, which the browser sees several times as soon.
      if (!there.isEqualNode(node)) {
        attributes(there, node);
        children(there, node);
      }
    } else if (there.nodeValue !== node.nodeValue) there.nodeValue = node.nodeValue;
    there = next;
  }
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
  // By their names: an object for each attribute would take longer than all of this.
  for (const name of to.getAttributeNames()) {
    const value = to.getAttribute(name) ?? "";
    if (from.getAttribute(name) !== value) from.setAttribute(name, value);
  }
  for (const name of from.getAttributeNames()) {
    // Whether a row is unfolded is the reader's to say.
    if (!to.hasAttribute(name) && name !== "open") from.removeAttribute(name);
  }
}
