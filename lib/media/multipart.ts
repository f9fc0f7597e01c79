import { type MultipartError, make } from 'multipasta';
import { RelayError } from '../errors.ts';
import { concatBytes } from '../kit/bytes.ts';
import { baseName, DEFAULT_TYPE, mediaType } from './names.ts';

const MAX_PARTS = 64;
const BOUNDARY = /;[ \t]*boundary=(?:"([^"\\]{1,70})"|([^\s;,"]{1,70})(?=[\s;,]|$))/i;

/** The uploaded part. */
export interface FilePart {
  fileName: string;
  contentType: string;
}

/** Contents of one chunk of the body: at most one `part`, its bytes in order, and whether it ended. */
export interface Pieces {
  part?: FilePart;
  bytes: Uint8Array[];
  ended: boolean;
}

const malformed = () => new RelayError('invalid', 'the multipart body cannot be read');

/** The boundary of a `multipart/…` content type. @throws RelayError `invalid` for any other */
export function boundaryOf(contentType: string | null): string {
  if (!/^\s*multipart\//i.test(contentType ?? '')) {
    throw new RelayError('invalid', 'the body must be multipart/form-data');
  }
  const found = BOUNDARY.exec(contentType as string);
  const boundary = (found?.[1] ?? found?.[2])?.trim();
  if (!boundary) throw new RelayError('invalid', 'the multipart body has no usable boundary');
  return boundary;
}

/** The head of a part. */
export interface PartHead {
  name: string | undefined;
  hasFileName: boolean;
}

const isNamedFile = ({ name }: PartHead): boolean => name === 'file';

/**
 * Extracts one part of a multipart body as it arrives: the first for which `isWanted` is true, by default the first named
 * `file`. Buffers only a part's head (16 KiB).
 */
export function createFilePartReader(boundary: string, isWanted = isNamedFile) {
  let state: 'before' | 'inside' | 'after' = 'before';
  let done = false;
  let failure: MultipartError | undefined;
  let pieces: Pieces = { bytes: [], ended: false };
  let held = new Uint8Array();

  const parser = make({
    headers: { 'content-type': `multipart/form-data; boundary="${boundary}"` },
    maxParts: MAX_PARTS,
    // Streams every part, since fields would be buffered completely.
    isFile: () => true,
    onField() {},
    onFile({ headers }) {
      const disposition = one(headers['content-disposition']);
      const fileName = parameter(disposition, 'filename');
      const hasFileName = (fileName ?? parameter(disposition, 'filename*')) !== undefined;
      if (state !== 'before' || !isWanted({ name: parameter(disposition, 'name'), hasFileName })) return () => {};
      state = 'inside';
      pieces.part = {
        fileName: baseName(fileName ?? '') ?? 'upload.bin',
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
      // Bytes after the closing boundary are ignored.
      if (!done) failure ??= error;
    },
    onDone() {
      done = true;
    },
  });

  return {
    /**
     * The returned bytes share the chunk's buffer.
     * @throws RelayError `invalid` for a body that is not multipart.
     */
    push(chunk: Uint8Array): Pieces {
      pieces = { bytes: [], ended: false };
      if (done || failure) return pieces;
      const bytes = held.length === 0 ? chunk : concatBytes(held, chunk);
      const ready = readyPart(bytes, boundary);
      held = bytes.slice(ready);
      try {
        if (ready > 0) parser.write(bytes.subarray(0, ready));
      } catch {
        // `filename*` cannot be decoded.
        throw malformed();
      }
      if (failure) throw malformed();
      return pieces;
    },
    /** True if the closing boundary was read. */
    complete: (): boolean => done,
  };
}

/**
 * Number of bytes that may be parsed now. The parser (0.2.8) misreads the two bytes after a delimiter, `--` or a line end,
 * if a chunk ends between them, so a delimiter is held back until both have arrived.
 */
function readyPart(bytes: Uint8Array, boundary: string): number {
  const delimiter = '\r\n--'.length + boundary.length;
  const at = bytes.indexOf(CR, Math.max(0, bytes.length - delimiter - 1));
  return at < 0 ? bytes.length : at;
}

const CR = 13;

const one = (value: string | string[] | undefined): string => (Array.isArray(value) ? value[0] : value) ?? '';

/** A parameter of a header, quoted or not. The parser itself fails on names outside Latin-1. */
function parameter(header: string, name: string): string | undefined {
  for (const [, key, quoted, plain] of header.matchAll(
    /;[ \t]*([\w*-]+)[ \t]*=[ \t]*(?:"((?:[^"\\]|\\.)*)"|([^;"]*))/g,
  )) {
    if (key?.toLowerCase() === name) return (quoted?.replace(/\\(["\\])/g, '$1') ?? plain ?? '').trim();
  }
  return undefined;
}
