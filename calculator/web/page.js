// @ts-check
/**
 * What every page of the site runs. The build puts it and what it imports into one script, but for
 * runtime.js and near.js, which early.js may have imported before.
 */

import "./calculator.js";
import "./deck.js";
import "./player.js";
import "./decoder.js";
import "./offline.js";
