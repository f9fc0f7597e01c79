import { utf8ToBytes } from '../kit/bytes.ts';

export interface FormFile {
  name: string;
  filename: string;
  contentType: string;
  /** Bytes of `content`. */
  size: number;
  content: Uint8Array | AsyncIterable<Uint8Array>;
}

/** A `multipart/form-data` body to send. */
export interface FormBody {
  /** With the boundary. */
  contentType: string;
  /** Bytes of the whole body, for `content-length`. */
  length: number;
  /** Can be iterated once. Throws if the size of the file differs from the announced one. */
  body: AsyncIterable<Uint8Array>;
}

/** Encodes fields and then one file, whose content is streamed. Fields with the same name may repeat. */
export function formData(fields: readonly (readonly [name: string, value: string])[], file: FormFile): FormBody {
  const boundary = `form-${crypto.randomUUID()}`;
  const parts = fields.map(([name, value]) => `${partHead(boundary, name)}\r\n\r\n${value}\r\n`);
  const fileHead = `${partHead(boundary, file.name)}; filename="${quoted(file.filename)}"`;
  const start = utf8ToBytes(`${parts.join('')}${fileHead}\r\nContent-Type: ${file.contentType}\r\n\r\n`);
  const end = utf8ToBytes(`\r\n--${boundary}--\r\n`);
  return {
    contentType: `multipart/form-data; boundary=${boundary}`,
    length: start.byteLength + file.size + end.byteLength,
    body: bodyOf(start, file, end),
  };
}

async function* bodyOf(start: Uint8Array, { content, size }: FormFile, end: Uint8Array): AsyncGenerator<Uint8Array> {
  yield start;
  let sent = 0;
  for await (const chunk of content instanceof Uint8Array ? [content] : content) {
    sent += chunk.byteLength;
    if (sent > size) break;
    yield chunk;
  }
  if (sent !== size) throw new Error(`the file is not of the ${size} bytes that were announced`);
  yield end;
}

const partHead = (boundary: string, name: string): string =>
  `--${boundary}\r\nContent-Disposition: form-data; name="${quoted(name)}"`;

/** Escapes like browsers (HTML, "multipart form data"). */
const quoted = (text: string): string => text.replaceAll('\r', '%0D').replaceAll('\n', '%0A').replaceAll('"', '%22');
