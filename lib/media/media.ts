import type { OpenBytes } from '../host/media.ts';
import type { MediaEntry } from './registry.ts';
import type { UploadBody } from './uploads.ts';

/** Body of `POST /media/register`, its types checked. */
export interface Registration {
  path: unknown;
  contentType: string;
  fileName: string | null;
  sensitive: boolean;
  owned: boolean;
}

/** Something to serve: whoever has it closes `bytes`, or hands on its body. */
export interface ServedMedia {
  bytes: OpenBytes;
  contentType: string;
  fileName: string | null;
  sensitive: boolean;
}

/** The media of a relay (contract 04 §2 to §4). */
export interface Media {
  /**
   * Enters a file of this host.
   * @throws RelayError `invalid` for whatever is wrong with it; `unsupported` without a host.
   */
  register(registration: Registration): Promise<MediaEntry>;
  /** Receives a file from a device. @throws RelayError, see `Uploads.receive`. */
  upload(body: UploadBody): Promise<MediaEntry>;
  /** Marks an entry sensitive for good; false when there is none. */
  markSensitive(token: string): boolean;
  /** Opens an entry. @throws RelayError `not-found`. */
  open(token: string): Promise<ServedMedia>;
  /**
   * Opens a file of this host by its path, or its path in the agent's container. The hint is a media type or nothing.
   * @throws RelayError `forbidden`, `not-found`; `unsupported` without a host.
   */
  openPath(path: string, hint: string | null): Promise<Omit<ServedMedia, 'sensitive'>>;
  list(includeExpired: boolean): (MediaEntry & { isExpired: boolean })[];
  /** Live entries. */
  count(): number;
  /** Begins what is done from time to time. */
  start(): void;
  /** Removes what has expired. */
  sweep(): Promise<void>;
  /** Ends uploads under way; on a host also every entry, with the files that are the relay's own. */
  stop(): Promise<void>;
}

/** Form of a token in a path that marks (contract 04 §3.4); those that are given out have 22 characters. */
export const isToken = (text: string): boolean => /^[A-Za-z0-9_-]{16,128}$/.test(text);
