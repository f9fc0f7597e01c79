import { bearer, type Paired, pair, post, type Target } from './relay.ts';

export const PNG = Buffer.from('89504e470d0a1a0a0000000d49484452', 'hex');

/** A multipart body as a browser or phone sends it. */
export function form(bytes: Uint8Array, name = 'picture.png', type = 'image/png', field = 'file'): FormData {
  const data = new FormData();
  data.append('note', 'ignored');
  data.append(field, new Blob([bytes as never], { type }), name);
  return data;
}

/** A paired device that uploads and fetches. */
export interface MediaDevice extends Paired {
  upload(body: BodyInit, init?: RequestInit): Promise<Response>;
  /** Uploads bytes, expects success, and returns their token. */
  put(bytes: Uint8Array, name?: string, type?: string): Promise<string>;
  get(path: string, init?: RequestInit): Promise<Response>;
}

export async function mediaDevice(target: Target): Promise<MediaDevice> {
  const paired = await pair(target);
  const get = (path: string, init: RequestInit = {}) =>
    target.fetch(path, { ...init, headers: { ...bearer(paired.token), ...(init.headers as Record<string, string>) } });
  const upload = (body: BodyInit, init: RequestInit = {}) => get('/media/upload', { method: 'POST', body, ...init });
  return {
    ...paired,
    get,
    upload,
    async put(bytes, name, type) {
      const response = await upload(form(bytes, name, type));
      if (response.status !== 200) throw new Error(`upload: ${response.status} ${await response.text()}`);
      return (await response.json()).token;
    },
  };
}

/** Registers a file as the host does. */
export const register = (target: Target, path: unknown, more: Record<string, unknown> = {}): Promise<Response> =>
  target.operator('/media/register', post({ path, content_type: 'text/plain', ...more }));

/** Registers a file, expects success, and returns its token. */
export async function registered(target: Target, path: string, more: Record<string, unknown> = {}): Promise<string> {
  const response = await register(target, path, more);
  if (response.status !== 200) throw new Error(`register: ${response.status} ${await response.text()}`);
  return (await response.json()).token;
}

/** Discards the body of a response and returns its status. */
export const statusOf = async (response: Promise<Response>): Promise<number> => {
  const answer = await response;
  await answer.arrayBuffer();
  return answer.status;
};
