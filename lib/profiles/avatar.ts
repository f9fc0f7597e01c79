import { RelayError } from '../errors.ts';
import { unlessUnreadable } from '../host/errors.ts';
import type { Host } from '../host/index.ts';
import { imageFormatOf } from '../kit/image-formats.ts';
import type { ProfilePlace } from './home.ts';

const STEMS = ['avatar', 'profile', 'profile-image', 'profile_image', 'agent', 'icon'];
const SUFFIXES = ['.png', '.jpg', '.jpeg', '.webp', '.gif'];

export const AVATAR_NAMES = STEMS.flatMap((stem) => SUFFIXES.map((suffix) => stem + suffix));

export interface Avatar {
  filename: string;
  type: string;
  bytes: Uint8Array;
  /** A strong ETag, with its quotes. */
  etag: string;
}

/**
 * The first file of a profile's home with an avatar name, in any case (contract 07 §1.5).
 * @throws RelayError `not-found`; `forbidden` for a file outside the home, an irregular file, or one over `limit` bytes;
 * `unsupported-media` for an unknown image format.
 */
export async function readAvatar(host: Host, { name, home }: ProfilePlace, limit: number): Promise<Avatar> {
  const entries = (await unlessUnreadable(host.files.list(home))) ?? [];
  const present = entries.map((entry) => entry.name).sort();
  const filename = AVATAR_NAMES.map((wanted) => present.find((name) => name.toLowerCase() === wanted)).find(Boolean);
  if (filename === undefined) {
    throw new RelayError('not-found', 'profile_avatar_not_found', {
      extra: { profile: name, expected_names: AVATAR_NAMES },
    });
  }
  const refusal = (detail: string) =>
    new RelayError('forbidden', 'profile_avatar_forbidden', { extra: { profile: name, detail } });
  const path = `${home}/${filename}`;
  if (((await unlessUnreadable(host.files.stat(path)))?.size ?? 0) > limit) throw refusal(`larger than ${limit} bytes`);
  const file = await unlessUnreadable(host.homeFiles.read(home, path, { content: limit + 1, digest: limit }));
  if (file === null) throw refusal('not a regular file that can be read');
  if (file === 'missing' || file === 'outside') throw refusal('the file is not in the profile');
  if (file.size > limit || file.bytes.length > limit || file.sha256 === null)
    throw refusal(`larger than ${limit} bytes`);
  const format = imageFormatOf(file.bytes);
  if (format) return { filename, type: `image/${format}`, bytes: file.bytes, etag: `"${file.sha256}"` };
  const detail = 'not a PNG, JPEG, GIF or WebP image';
  throw new RelayError('unsupported-media', 'profile_avatar_invalid', { extra: { profile: name, detail } });
}
