/** Metadata of a stored object. */
export interface ObjectFacts {
  size: number;
  /** Entity tag without quotes. */
  etag: string;
  uploaded: Date;
}

/** The part of an R2 bucket that the relay uses. The relay chooses the keys. */
export interface ObjectStore {
  head(key: string): Promise<ObjectFacts | null>;
  get(key: string, options: { range: { offset: number; length: number } }): Promise<{ body?: unknown } | null>;
  put(key: string, bytes: Uint8Array): Promise<unknown>;
  delete(key: string): Promise<void>;
  createMultipartUpload(key: string): Promise<ObjectUpload>;
}

export interface ObjectUpload {
  uploadPart(number: number, bytes: Uint8Array): Promise<{ partNumber: number; etag: string }>;
  complete(parts: { partNumber: number; etag: string }[]): Promise<unknown>;
  abort(): Promise<void>;
}
