import type { OpenBytes } from '../host/media.ts';
import { imageFormatOf } from '../kit/image-formats.ts';
import { DEFAULT_TYPE } from './names.ts';

/** Media types, each followed by its file extensions. */
const TYPES = `
image/png png
image/jpeg jpg jpeg jpe jfif
image/gif gif
image/webp webp
image/avif avif
image/heic heic
image/heif heif
image/bmp bmp
image/svg+xml svg
image/tiff tif tiff
image/vnd.microsoft.icon ico
audio/mpeg mp3 mpga
audio/mp4 m4a
audio/aac aac
audio/ogg oga ogg opus
audio/wav wav
audio/flac flac
audio/amr amr
audio/midi mid midi
video/mp4 mp4 m4v
video/quicktime mov qt
video/webm webm
video/x-matroska mkv
video/x-msvideo avi
video/mpeg mpg mpeg
video/3gpp 3gp
video/ogg ogv
video/mp2t ts
text/plain txt log text
text/markdown md markdown
text/html html htm
text/css css
text/csv csv
text/javascript js mjs
text/calendar ics
text/vcard vcf
application/json json
application/xml xml
application/pdf pdf
application/epub+zip epub
application/rtf rtf
application/zip zip
application/gzip gz
application/x-tar tar
application/x-7z-compressed 7z
application/vnd.android.package-archive apk
application/msword doc
application/vnd.ms-excel xls
application/vnd.ms-powerpoint ppt
application/vnd.openxmlformats-officedocument.wordprocessingml.document docx
application/vnd.openxmlformats-officedocument.spreadsheetml.sheet xlsx
application/vnd.openxmlformats-officedocument.presentationml.presentation pptx
application/vnd.oasis.opendocument.text odt
application/vnd.oasis.opendocument.spreadsheet ods
`;

/** The media type of a file's extension; `application/octet-stream` for an unknown one. */
export function guessType(path: string): string {
  const extension = /\.([A-Za-z0-9]{1,16})$/.exec(path)?.[1]?.toLowerCase();
  if (extension === undefined) return DEFAULT_TYPE;
  const line = TYPES.split('\n').find((text) => text.split(' ').indexOf(extension) > 0);
  return line?.split(' ')[0] ?? DEFAULT_TYPE;
}

/** Leading bytes that `correctType` examines. */
const SNIFFED = 16;

const isImageType = (type: string): boolean => /^image\//i.test(type);

/** The declared type of an image, corrected if its first bytes clearly are of another (contract 04 §3.8). */
export function correctType(declared: string, head: Uint8Array): string {
  if (!isImageType(declared)) return declared;
  const format = imageFormatOf(head);
  if (!format) return declared;
  const sniffed = `image/${format}`;
  return declared.split(';')[0]?.trim().toLowerCase() === sniffed ? declared : sniffed;
}

/** The type to serve bytes as. Bytes that cannot be read keep their declared type. */
export async function typeOf(bytes: OpenBytes, declared: string): Promise<string> {
  if (!isImageType(declared)) return declared;
  return correctType(declared, await bytes.head(SNIFFED).catch(() => new Uint8Array()));
}
