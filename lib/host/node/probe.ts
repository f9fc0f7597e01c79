import { request as httpRequest, type IncomingMessage } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { isLoopbackName, unbracket } from '../../kit/addresses.ts';
import { parseJson } from '../../kit/json.ts';
import type { Probe, ProbeResult } from '../probe.ts';
import { unanswered } from '../probe.ts';
import { upstreamReason } from '../upstream.ts';

const MAX_BODY = 256 * 1024;

/** A `Probe` with a connection of its own for each request. */
export const probe: Probe = (method, url, timeout, extra) => {
  const target = URL.canParse(url) ? new URL(url) : null;
  if (!target || !/^https?:$/.test(target.protocol)) {
    return Promise.resolve(unanswered(method, url, 'not an http:// or https:// URL'));
  }
  return new Promise((resolve) => {
    let answered: IncomingMessage | undefined;
    const request = (target.protocol === 'https:' ? httpsRequest : httpRequest)(target, {
      method,
      agent: false,
      // A local service may have a self-signed certificate, and no attacker is in between.
      rejectUnauthorized: !isLoopbackName(unbracket(target.hostname)),
      headers: {
        accept: 'application/json',
        'accept-encoding': 'identity',
        ...extra,
        ...(method === 'POST' && NO_BODY),
      },
    });
    const end = (rest: Partial<ProbeResult>) => {
      clearTimeout(timer);
      request.destroy();
      const status = answered?.statusCode ?? null;
      resolve({ ...unanswered(method, url, ''), status, exists: status !== null && status !== 404, ...rest });
    };
    const timer = setTimeout(() => end({ error: `no whole answer within ${timeout / 1000} s` }), timeout);
    // `on`: a destroyed request may report a second error.
    request.on('error', (error) => end({ error: upstreamReason(error) }));
    request.on('response', (response) => {
      answered = response;
      const chunks: Buffer[] = [];
      let size = 0;
      response.on('data', (chunk: Buffer) => {
        size += chunk.length;
        if (size > MAX_BODY) end({ error: `answered more than ${MAX_BODY / 1024} KiB` });
        else chunks.push(chunk);
      });
      response.on('error', (error) => end({ error: upstreamReason(error) }));
      response.on('end', () => {
        const status = response.statusCode ?? 0;
        end({ ok: status >= 200 && status < 400, error: undefined, ...jsonOf(Buffer.concat(chunks)) });
      });
    });
    request.end();
  });
};

const NO_BODY = { 'content-length': '0' };

function jsonOf(body: Buffer): { json?: unknown } {
  const json = parseJson(body.toString('utf8'));
  return json === undefined ? {} : { json };
}
