export type ImageFormat = 'png' | 'jpeg' | 'webp' | 'gif';

/** Leading bytes of each format. All parts of a row must match. */
const MAGIC: Record<ImageFormat, [offset: number, bytes: string][][]> = {
  png: [[[0, '\x89PNG\r\n\x1a\n']]],
  jpeg: [[[0, '\xff\xd8\xff']]],
  webp: [
    [
      [0, 'RIFF'],
      [8, 'WEBP'],
    ],
  ],
  gif: [[[0, 'GIF87a']], [[0, 'GIF89a']]],
};

const FORMATS = Object.keys(MAGIC) as ImageFormat[];

/** The format of a name, in any case and trimmed (`jpg` is `jpeg`); undefined for an unknown one. */
export function imageFormat(name: string): ImageFormat | undefined {
  const lower = name.trim().toLowerCase();
  const format = lower === 'jpg' ? 'jpeg' : lower;
  return Object.hasOwn(MAGIC, format) ? (format as ImageFormat) : undefined;
}

/** True if the bytes begin like an image of this format. */
export function isImage(format: ImageFormat, bytes: Uint8Array): boolean {
  return MAGIC[format].some((parts) => parts.every(([offset, magic]) => holds(bytes, offset, magic)));
}

/** The format of an image, from its first bytes; undefined for other content. */
export const imageFormatOf = (bytes: Uint8Array): ImageFormat | undefined =>
  FORMATS.find((format) => isImage(format, bytes));

function holds(bytes: Uint8Array, offset: number, magic: string): boolean {
  for (let at = 0; at < magic.length; at++) if (bytes[offset + at] !== magic.charCodeAt(at)) return false;
  return true;
}
