import { imageFormatOf } from '../../../../lib/kit/image-formats.ts';
import { type Api, ApiError } from '../../shared/api.ts';

/** Formats for the file chooser, those of the agent's inbox. A phone converts its own format to one of them. */
export const PICTURE_TYPES = 'image/png,image/jpeg,image/webp,image/gif';

export const MAX_PICTURES = 4;
/** Bytes of the largest picture that the relay accepts (contract 04 §6). */
const MAX_BYTES = 25 * 1024 * 1024;
const HEAD = 16;

/** Sentences for the statuses of a refused picture. */
const REFUSALS: Readonly<Record<number, string>> = {
  403: 'This device may not send files.',
  413: 'A picture may have 25 MB at most.',
  501: 'This relay has no machine of an agent to send pictures to.',
};

/** True if it may have one of the formats, judging by its type, as it was not read yet. */
export const isPicture = ({ type }: File): boolean => PICTURE_TYPES.split(',').includes(type);

/**
 * Puts a picture into the agent's inbox (contract 04 §6), and resolves with its path there. A message to the agent is text
 * only (contract 02 §5.1), so it refers to the picture by this path.
 * @throws Error worded for people
 */
export async function stagePicture(
  api: Api,
  file: File,
  signal: AbortSignal,
  onProgress: (sent: number) => void,
): Promise<string> {
  if (file.size > MAX_BYTES) throw new Error(REFUSALS[413]);
  const format = imageFormatOf(new Uint8Array(await file.slice(0, HEAD).arrayBuffer()));
  if (!format) throw new Error('Only pictures in PNG, JPEG, WebP or GIF can be sent.');
  try {
    const { path } = await api.call<{ path: string }>('clipboard/inbox', {
      method: 'POST',
      body: { format, bytes_base64: await base64Of(file), filename_hint: file.name.replace(/\.\w+$/, '') },
      signal,
      onProgress,
    });
    return path;
  } catch (error) {
    const refusal = error instanceof ApiError ? REFUSALS[error.status] : undefined;
    throw refusal === undefined ? error : new Error(refusal);
  }
}

function base64Of(file: File): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result).replace(/^[^,]*,/, ''));
    reader.onerror = () => reject(new Error('The picture could not be read.'));
    reader.readAsDataURL(file);
  });
}

/** The message about pictures in the agent's inbox, as agents and this app read it. */
export const withPictures = (text: string, pictures: readonly { name: string; path: string }[]): string =>
  [text, ...pictures.map(({ name, path }) => `![${name.replace(/[[\]\n]/g, ' ')}](${path})`)]
    .filter((part) => part !== '')
    .join('\n');
