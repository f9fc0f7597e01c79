import { createHash } from 'node:crypto';
import { mkdir, writeFile } from 'node:fs/promises';
import { request } from 'node:http';
import { dirname, join } from 'node:path';
import { bearer, pair, type Target } from './relay.ts';

/** Writes files into the agent home of a relay. */
export async function put(target: Target, files: Record<string, string | Uint8Array>): Promise<void> {
  for (const [name, content] of Object.entries(files)) {
    const path = join(target.agentHome, name);
    await mkdir(dirname(path), { recursive: true });
    await writeFile(path, content);
  }
}

export interface ProfileResponse {
  status: number;
  headers: Headers;
  // biome-ignore lint/suspicious/noExplicitAny: each test knows what it asked for
  body: any;
}

/** A paired device that uses the profile routes. Paths begin after `/api/profiles/`. */
export async function profileClient(target: Target) {
  const { token, client } = await pair(target);
  const call = async (path: string, init: RequestInit = {}): Promise<ProfileResponse> => {
    const headers = { ...bearer(token), ...(init.headers as Record<string, string>) };
    const response = await target.fetch(path, { ...init, headers });
    const text = await response.text();
    let body: unknown = text;
    try {
      body = JSON.parse(text);
    } catch {}
    return { status: response.status, headers: response.headers, body };
  };
  return {
    client,
    token,
    call,
    get: (path: string) => call(`/api/profiles/${path}`),
    put: (path: string, content: unknown, headers: Record<string, string> = {}) =>
      call(`/api/profiles/${path}`, { method: 'PUT', body: JSON.stringify({ content }), headers }),
  };
}

/** A GET whose path goes over the wire unchanged: `fetch` would normalise it. */
export function getRaw(target: Target, path: string, token: string): Promise<{ status: number; body: string }> {
  const { hostname, port } = new URL(target.url);
  return new Promise((resolve, reject) => {
    const call = request({ hostname, port, path, headers: bearer(token), agent: false }, (response) => {
      let body = '';
      response.setEncoding('utf8').on('data', (chunk: string) => {
        body += chunk;
      });
      response.on('end', () => resolve({ status: response.statusCode ?? 0, body }));
    });
    call.on('error', reject);
    call.end();
  });
}

export const etagOf = (content: string) => `"${createHash('sha256').update(content).digest('hex')}"`;
