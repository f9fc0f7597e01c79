import { concatBytes } from '../../lib/kit/bytes.ts';
import { dataHeader } from '../../lib/reach/frames.ts';

/** A DATA frame in one piece. */
export const dataFrame = (streamId: string, payload: Uint8Array): Uint8Array<ArrayBuffer> =>
  concatBytes(dataHeader(streamId), payload);
