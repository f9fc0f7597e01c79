import { visible } from '../kit/text.ts';

const MAX_NAME = 255;
const MAX_TYPE = 255;
const TOKEN = "[!#$%&'*+.^_`|~0-9A-Za-z-]+";
const MEDIA_TYPE = new RegExp(`^${TOKEN}/${TOKEN}(?:[ \\t]*;[ \\t]*${TOKEN}=(?:${TOKEN}|"[ !#-\\[\\]-~]*"))*$`);
const UNPAIRED = /\p{Surrogate}/gu;

export const DEFAULT_TYPE = 'application/octet-stream';

/** A trimmed media type with its parameters, or null if the text is not one. */
export function mediaType(text: string): string | null {
  const type = text.trim();
  return type.length <= MAX_TYPE && MEDIA_TYPE.test(type) ? type : null;
}

/** The name after the last slash of either kind, without invisible characters, at most 255 characters; null if empty. */
export function baseName(name: string): string | null {
  const base = name.slice(Math.max(name.lastIndexOf('/'), name.lastIndexOf('\\')) + 1);
  const fit = visible(base).replace(UNPAIRED, '\ufffd');
  return [...fit].slice(0, MAX_NAME).join('').slice(0, MAX_NAME).replace(UNPAIRED, '') || null;
}

/** The suffix `.png` of `a.b.png`, if it is short and plain enough to be part of a path. */
export function plainSuffix(name: string): string {
  return /\.[A-Za-z0-9]{1,16}$/.exec(name)?.[0] ?? '';
}

/**
 * `Content-Disposition` for a file name (contract 04 §3.9). A name outside ASCII appears twice: as UTF-8 for phones that
 * read only `filename=`, and percent-encoded for all other clients.
 */
export function contentDisposition(name: string | null): string {
  const safe = visible(name ?? '')
    .replace(/["\\]/g, '')
    .replace(UNPAIRED, '\ufffd');
  if (safe === '') return 'inline';
  const plain = `inline; filename="${safe}"`;
  return /^[ -~]*$/.test(safe) ? plain : `${plain}; filename*=UTF-8''${percentEncoded(safe)}`;
}

/** RFC 8187 `ext-value`, which allows fewer characters than `encodeURIComponent` leaves alone. */
const percentEncoded = (text: string): string =>
  encodeURIComponent(text).replace(/['()*]/g, (sign) => `%${sign.charCodeAt(0).toString(16).toUpperCase()}`);
