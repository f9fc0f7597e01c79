import { fromBase64 } from '../kit/bytes.ts';

/** A file of the web pages, as written by `cli/pages.mjs`. */
export interface PageFile {
  /** Path below the relay's address: `app/main-4F2K.js`, and `app/` for the document. */
  path: string;
  /** Media type. */
  type: string;
  /** Hash of the content. */
  hash: string;
  /** True if the name contains a hash too, so that its content never changes. */
  immutable: boolean;
  /** Base64 of the content in both compressed forms. */
  br: string;
  gzip: string;
}

export type Encoding = 'br' | 'gzip' | 'identity';

export interface Page extends Pick<PageFile, 'type' | 'hash' | 'immutable'> {
  /** The content in one of its encodings. Only the compressed ones are precomputed. */
  content(encoding: Encoding): Uint8Array | Promise<Uint8Array>;
}

export type LoadPages = () => Promise<readonly PageFile[]>;

export type Pages = ReturnType<typeof createPages>;

/** The files of the pages, loaded when a browser requests the first one. */
export function createPages(load: LoadPages) {
  let loaded: Promise<ReadonlyMap<string, Page>> | undefined;

  async function read(): Promise<ReadonlyMap<string, Page>> {
    return new Map((await load()).map((file) => [file.path, pageOf(file)]));
  }

  return {
    async find(path: string): Promise<Page | undefined> {
      loaded ??= read();
      // A build may appear later.
      loaded.catch(() => {
        loaded = undefined;
      });
      return (await loaded).get(path);
    },
  };
}

function pageOf({ type, hash, immutable, ...file }: PageFile): Page {
  const forms = new Map<Encoding, Uint8Array>();

  function compressed(encoding: 'br' | 'gzip'): Uint8Array {
    const bytes = forms.get(encoding) ?? fromBase64(file[encoding]) ?? new Uint8Array();
    forms.set(encoding, bytes);
    return bytes;
  }

  return {
    type,
    hash,
    immutable,
    content: (encoding) => (encoding === 'identity' ? unzip(compressed('gzip')) : compressed(encoding)),
  };
}

async function unzip(bytes: Uint8Array): Promise<Uint8Array> {
  const stream = new Blob([bytes as BlobPart]).stream().pipeThrough(new DecompressionStream('gzip'));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** The best form for an `Accept-Encoding` header. A form with `q=0` is refused (RFC 9110 §12.5.3). */
export function acceptedEncoding(header: string | null): Encoding {
  const accepted = (header ?? '')
    .toLowerCase()
    .split(',')
    .map((part) => part.split(';').map((piece) => piece.trim()))
    .filter(([, weight]) => !/^q=0(?:\.0*)?$/.test(weight ?? ''))
    .map(([name]) => name);
  return (['br', 'gzip'] as const).find((name) => accepted.includes(name)) ?? 'identity';
}
