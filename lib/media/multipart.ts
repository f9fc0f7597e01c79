import { type MultipartError, make } from 'multipasta';
import { RelayError } from '../errors.ts';
import { concatBytes } from '../kit/bytes.ts';
import { baseName, DEFAULT_TYPE, mediaType } from './names.ts';

const MAX_PARTS = 64;
const BOUNDARY = /;[ \t]*boundary=(?:"([^"\\]{1,70})"|([^\s;,"]{1,70})(?=[\s;,]|$))/i;

/** The part that is uploaded. */
export interface FilePart {
  fileName: string;
  contentType: string;
}

/** What one more chunk of the body brought: at most one `part`, its bytes in order, and at most one `end`. */
export interface Pieces {
  part?: FilePart;
  bytes: Uint8Array[];
  ended: boolean;
}

export interface FilePartReader {
  /**
   * The bytes are only good until the next call, with the chunk they are part of.
   * @throws RelayError `invalid` for a body that is no multipart one.
   */
  push(chunk: Uint8Array): Pieces;
  /** Whether the closing boundary was there. */
  complete(): boolean;
}

const malformed = () => new RelayError('invalid', 'the multipart body cannot be read');

/** Whether a content type is `multipart/…` at all, and its boundary. @throws RelayError `invalid` */
export function boundaryOf(contentType: string | null): string {
  if (!/^\s*multipart\//i.test(contentType ?? '')) {
    throw new RelayError('invalid', 'the body must be multipart/form-data');
  }
  const found = BOUNDARY.exec(contentType as string);
  const boundary = (found?.[1] ?? found?.[2])?.trim();
  if (!boundary) throw new RelayError('invalid', 'the multipart body has no usable boundary');
  return boundary;
}

/** Takes the first part named `file` out of a multipart body, as it arrives. Nothing is kept but a part's head (16 KiB). */
export function createFilePartReader(boundary: string): FilePartReader {
  let state: 'before' | 'inside' | 'after' = 'before';
  let done = false;
  let failure: MultipartError | undefined;
  let pieces: Pieces = { bytes: [], ended: false };
  let held = new Uint8Array();

  const parser = make({
    headers: { 'content-type': `multipart/form-data; boundary="${boundary}"` },
    maxParts: MAX_PARTS,
    // Every part is handed on as it arrives: fields would be kept whole.
    isFile: () => true,
    onField() {},
    onFile({ headers }) {
      const disposition = one(headers['content-disposition']);
      if (state !== 'before' || parameter(disposition, 'name') !== 'file') return () => {};
      state = 'inside';
      pieces.part = {
        fileName: baseName(parameter(disposition, 'filename') ?? '') ?? 'upload.bin',
        contentType: mediaType(one(headers['content-type'])) ?? DEFAULT_TYPE,
      };
      return (bytes) => {
        if (bytes) pieces.bytes.push(bytes);
        else {
          state = 'after';
          pieces.ended = true;
        }
      };
    },
    onError(error) {
      // What follows the closing boundary is nobody's.
      if (!done) failure ??= error;
    },
    onDone() {
      done = true;
    },
  });

  return {
    push(chunk) {
      pieces = { bytes: [], ended: false };
      if (done || failure) return pieces;
      const bytes = held.length === 0 ? chunk : concatBytes(held, chunk);
      const ready = readyPart(bytes, boundary);
      held = bytes.slice(ready);
      try {
        if (ready > 0) parser.write(bytes.subarray(0, ready));
      } catch {
        // A `filename*` that cannot be decoded.
        throw malformed();
      }
      if (failure) throw malformed();
      return pieces;
    },
    complete: () => done,
  };
}

/**
 * How much of the bytes may be parsed now. The parser overlooks what follows a delimiter, `--` or the end of the line,
 * when it is cut (0.2.8): so a delimiter waits until both bytes are there.
 */
function readyPart(bytes: Uint8Array, boundary: string): number {
  const delimiter = '\r\n--'.length + boundary.length;
  const at = bytes.indexOf(CR, Math.max(0, bytes.length - delimiter - 1));
  return at < 0 ? bytes.length : at;
}

const CR = 13;

const one = (value: string | string[] | undefined): string => (Array.isArray(value) ? value[0] : value) ?? '';

/** A parameter of a header, quoted or not. The parser's own reading gives up at names outside Latin-1. */
function parameter(header: string, name: string): string | undefined {
  for (const [, key, quoted, plain] of header.matchAll(
    /;[ \t]*([\w*-]+)[ \t]*=[ \t]*(?:"((?:[^"\\]|\\.)*)"|([^;"]*))/g,
  )) {
    if (key?.toLowerCase() === name) return (quoted?.replace(/\\(["\\])/g, '$1') ?? plain ?? '').trim();
  }
  return undefined;
}
