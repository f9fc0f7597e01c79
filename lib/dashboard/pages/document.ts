import { RelayError } from '../../errors.ts';
import { isDeeperThan, isObject, type JsonObject } from '../../kit/json.ts';
import { utf8Length } from '../../kit/text.ts';

/** THE list of element types that a phone draws. */
const ELEMENT_TYPES: ReadonlySet<unknown> = new Set([
  'group',
  'card',
  'text',
  'badge',
  'button',
  'text_input',
  'toggle',
  'progress',
  'image',
  'divider',
  'spacer',
]);

/** Bytes of the document as JSON in UTF-8. */
export const MAX_DOCUMENT = 512 * 1024;
const MAX_PAGES = 32;
const MAX_ELEMENTS = 500;
const MAX_CHILDREN = 100;
/** Levels of elements below a page. */
const MAX_DEPTH = 16;
/** Levels of JSON: elements take two each, and their properties a few more. */
const MAX_LEVELS = 64;

/** From here on, the canonical form writes all digits of a number, which is far longer than the document. */
const MAX_NUMBER = 1e21;

const SAFE_ID = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;

/** Names of members that hold an address: `url`, `src`, `imageUrl`, `link_href`, `icon`. */
const ADDRESS_MEMBER =
  /(?:^|_)(?:url|uri|src|href|link|source|image|icon|poster)$|(?:Url|URL|Uri|URI|Src|Href|Link|Source|Image|Icon)$/;
const IMAGE_DATA = /^data:image\/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+={0,2}$/;
/** An address that a web view would run, in a member of any name. A space after the colon makes it prose. */
const SCRIPT = /^(?:(?:javascript|vbscript|livescript):(?! )|data:(?:text\/|application\/|image\/svg))/i;
/** Control characters, which a URL parser drops or skips. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: it matches control characters
const IGNORED = /[\u0000-\u001f\u007f-\u009f\u2028\u2029\ufeff]+|^[\u0020\u00a0]+/g;

const invalid = (message: string) => new RelayError('invalid', message);
const noRequests = () => invalid('a page may not send requests: action.request is not allowed');

/**
 * Checks a document of the mobile page store (contract 07 §4.4) and returns it.
 *
 * Where the contract is silent, a page fails closed: members that hold an address take `http:`, `https:`, relative and
 * raster `data:` URLs only; no other text may be a script URL; numbers are below 1e21; a `type` of the document or of a
 * page, if there is one, is `document` or `page`; only a group has `children` and only a card has `child`.
 * @throws RelayError `invalid` with the rule that is broken.
 */
export function checkDocument(value: unknown): JsonObject {
  if (!isObject(value)) throw invalid('document must be an object');
  if (isDeeperThan(value, MAX_LEVELS)) throw invalid(`document has more than ${MAX_LEVELS} levels`);
  checkValues(value);
  if (utf8Length(JSON.stringify(value)) > MAX_DOCUMENT) throw invalid('document is larger than 512 KiB');
  checkVersion(value);
  checkTopLevelType(value, 'document');
  const { pages } = value;
  if (!Array.isArray(pages) || pages.length < 1 || pages.length > MAX_PAGES) {
    throw invalid(`document.pages must be an array of 1 to ${MAX_PAGES} pages`);
  }
  const pageIds = new Set<string>();
  const elementIds = new Set<string>();
  for (const page of pages) checkPage(page, pageIds, elementIds);
  return value;
}

function checkVersion({ schemaVersion, schema_version }: JsonObject): void {
  const versions = [schemaVersion, schema_version].filter((version) => version !== undefined);
  if (versions.length === 0 || versions.some((version) => version !== 1)) {
    throw invalid('document.schemaVersion must be 1');
  }
}

function checkTopLevelType({ type }: JsonObject, expected: string): void {
  if (type !== undefined && type !== expected) throw invalid(`${expected}.type must be '${expected}' if it is given`);
}

function checkPage(page: unknown, pageIds: Set<string>, elementIds: Set<string>): void {
  if (!isObject(page)) throw invalid('every page must be an object');
  claimId(page.id, pageIds, 'page');
  checkTopLevelType(page, 'page');
  if (!isObject(page.title)) throw invalid('page.title must be an object');
  checkElement(page.content, 1, elementIds);
}

function claimId(id: unknown, usedIds: Set<string>, owner: string): void {
  if (typeof id !== 'string' || !SAFE_ID.test(id)) {
    throw invalid(`${owner}.id must be 1 to 64 of letters, digits, '.', '_' and '-', and begin with no sign`);
  }
  if (usedIds.has(id)) throw invalid(`${owner}.id must be unique in the document`);
  usedIds.add(id);
}

function checkElement(element: unknown, depth: number, ids: Set<string>): void {
  if (!isObject(element)) throw invalid('every element must be an object');
  if (depth > MAX_DEPTH) throw invalid(`elements are nested more than ${MAX_DEPTH} levels deep`);
  const { type, id, children, child } = element;
  if (!ELEMENT_TYPES.has(type)) throw invalid(`element.type must be one of ${[...ELEMENT_TYPES].join(', ')}`);
  claimId(id, ids, 'element');
  if (ids.size > MAX_ELEMENTS) throw invalid(`document has more than ${MAX_ELEMENTS} elements`);
  if (type !== 'group' && children !== undefined) throw invalid('only a group has children');
  if (type !== 'card' && child !== undefined) throw invalid('only a card has a child');
  if (type === 'group') {
    if (!Array.isArray(children) || children.length > MAX_CHILDREN) {
      throw invalid(`group.children must be an array of at most ${MAX_CHILDREN} elements`);
    }
    for (const each of children) checkElement(each, depth + 1, ids);
  }
  if (child !== undefined) checkElement(child, depth + 1, ids);
}

/** Checks every value at any depth. Needs a bounded depth. */
function checkValues(value: unknown, name = '', isInAction = false): void {
  if (typeof value === 'number' && !(Math.abs(value) < MAX_NUMBER))
    throw invalid('document has a number that is too large');
  if (typeof value === 'string') checkText(value, name);
  if (Array.isArray(value)) for (const each of value) checkValues(each, name, isInAction);
  if (!isObject(value)) return;
  for (const [member, each] of Object.entries(value)) {
    const isAction = isInAction || member === 'action' || member === 'actions';
    if (member === 'action.request' || (isInAction && member === 'request')) throw noRequests();
    checkValues(each, member, isAction);
  }
}

function checkText(text: string, member: string): void {
  const bare = text.replace(IGNORED, '').trim();
  const isRequest = member === 'action' && bare.toLowerCase() === 'request';
  if (isRequest || bare.toLowerCase() === 'action.request') throw noRequests();
  if (ADDRESS_MEMBER.test(member) && !isSafeAddress(text)) {
    throw invalid('a URL of a document must be http(s), relative, or base64 data of a PNG, JPEG, GIF or WebP image');
  }
  if (SCRIPT.test(bare)) throw invalid('document has a URL that could run as a script');
}

function isSafeAddress(text: string): boolean {
  if (text === '' || IMAGE_DATA.test(text)) return true;
  if (text.replace(IGNORED, '') !== text || /[\s<>"'`\\]/.test(text)) return false;
  if (/^https?:\/\//i.test(text)) {
    const url = URL.canParse(text) ? new URL(text) : null;
    return url !== null && url.username === '' && url.password === '';
  }
  // Neither another scheme nor another host.
  return !/^[^/?#]*:/.test(text) && !text.startsWith('//');
}
