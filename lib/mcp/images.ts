import type { ContentBlock } from '@modelcontextprotocol/server';
import { RelayError } from '../errors.ts';
import { base64, fromBase64 } from '../kit/bytes.ts';
import { isObject, parseObject } from '../kit/json.ts';
import type { Media } from '../media/media.ts';

/** Bytes of an image that is part of an answer; larger ones become links (contract 09 §7). */
const MAX_IMAGE = 1024 * 1024;
const MARKER = /^MEDIA:svc-relay:\/\/([A-Za-z0-9_-]{16,128})$/;
/** Longer answers contain no marker. */
const MAX_MARKER_ANSWER = 4096;
/** Tools whose answers contain images as base64, as desktops send them and older phones did (contract 07 §2.1, 03 §9). */
const SCREENSHOT = /_screenshot$/;
const DATA_URL = /^data:image\/[a-z0-9.+-]{1,32};base64,/;
/** Image types by the first characters of their base64. */
const TYPES = [
  ['iVBORw0KGgo', 'image/png'],
  ['/9j/', 'image/jpeg'],
  ['UklGR', 'image/webp'],
] as const;
const MIN_IMAGE = 64;
const MAX_DEPTH = 6;
const REPLACED = '[the image of this result]';

/** Source and destination of images. */
export interface ImageDeps {
  media: Media | undefined;
  /** Owner of uploads for their limits: the family of the caller's session. */
  owner: string;
}

/** The image of an answer, and the rest of the answer. */
export interface ImageAnswer {
  image: ContentBlock;
  json: string;
}

/**
 * The image in the answer of a tool: an uploaded one behind a marker, or base64 in the answer of a screenshot. Undefined for
 * any other answer.
 * @throws RelayError if an image is over 1 MiB and the relay cannot store it.
 */
export async function imageIn(tool: string, json: string, deps: ImageDeps): Promise<ImageAnswer | undefined> {
  const token = markerIn(json);
  if (token !== undefined) {
    const image = await uploaded(token, deps.media);
    return image && { image, json };
  }
  const answer = SCREENSHOT.test(tool) ? parseObject(json) : null;
  const data = answer && takeImage(answer, MAX_DEPTH);
  return data ? { image: await inline(data, deps), json: JSON.stringify(answer) } : undefined;
}

function markerIn(json: string): string | undefined {
  if (json.length > MAX_MARKER_ANSWER || !json.includes('MEDIA:svc-relay://')) return undefined;
  const { media } = parseObject(json) ?? {};
  return typeof media === 'string' ? MARKER.exec(media)?.[1] : undefined;
}

/** An uploaded image, or a link to one that is too large. Undefined for any other media. */
async function uploaded(token: string, media: Media | undefined): Promise<ContentBlock | undefined> {
  const served = await media?.open(token).catch(() => undefined);
  if (!served) return undefined;
  const { bytes, contentType: mimeType, fileName } = served;
  try {
    if (served.sensitive || !mimeType.startsWith('image/')) return undefined;
    if (bytes.size > MAX_IMAGE) return link(token, { name: fileName ?? 'screenshot', mimeType, size: bytes.size });
    return { type: 'image', data: base64(await bytes.head(bytes.size)), mimeType };
  } finally {
    await bytes.close();
  }
}

const link = (token: string, facts: { name: string; mimeType: string; size: number }): ContentBlock => ({
  type: 'resource_link',
  uri: `svc-relay://${token}`,
  ...facts,
  description: `GET /media/${token} of this relay, with the bearer of a session that has the files grant.`,
});

interface Base64Image {
  text: string;
  mimeType: string;
}

/** Removes the first image from a value, and leaves a few words in its place. */
function takeImage(holder: Record<string, unknown> | unknown[], depth: number): Base64Image | undefined {
  for (const [key, value] of Object.entries(holder)) {
    const image = typeof value === 'string' ? readImage(value) : undefined;
    if (image) {
      (holder as Record<string, unknown>)[key] = REPLACED;
      return image;
    }
    if (depth <= 0 || !(isObject(value) || Array.isArray(value))) continue;
    const inner = takeImage(value, depth - 1);
    if (inner) return inner;
  }
  return undefined;
}

function readImage(value: string): Base64Image | undefined {
  if (value.length < MIN_IMAGE) return undefined;
  const [head = ''] = DATA_URL.exec(value.slice(0, MIN_IMAGE)) ?? [];
  const text = value.slice(head.length);
  const type = TYPES.find(([start]) => text.startsWith(start));
  return type && { text, mimeType: type[1] };
}

async function inline({ text, mimeType }: Base64Image, { media, owner }: ImageDeps): Promise<ContentBlock> {
  const bytes = fromBase64(text.replaceAll(/\s/g, ''));
  if (!bytes) throw new RelayError('bad-gateway', 'the image of the device cannot be read');
  if (bytes.length <= MAX_IMAGE) return { type: 'image', data: base64(bytes), mimeType };
  if (!media) throw new RelayError('unsupported', 'the image is larger than 1 MiB, and this relay stores no media');
  const name = `screenshot.${mimeType.slice('image/'.length)}`;
  const form = new FormData();
  form.set('file', new File([bytes as Uint8Array<ArrayBuffer>], name, { type: mimeType }));
  const { headers, body } = new Response(form);
  const { token } = await media.upload({
    contentType: headers.get('content-type'),
    contentLength: null,
    chunks: body as ReadableStream<Uint8Array>,
    owner,
    isWelcome: () => true,
  });
  return link(token, { name, mimeType, size: bytes.length });
}
