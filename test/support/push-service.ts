import { createDecipheriv, createECDH, createHash, createPublicKey, hkdfSync, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingHttpHeaders } from 'node:http';
import type { AddressInfo } from 'node:net';
import { jwtVerify } from 'jose';
import { onTestFinished, vi } from 'vitest';
import { POLL, TIMEOUT } from './limits.ts';

/** A notice that arrived, after its VAPID token was verified and its body decrypted with the keys of its endpoint. */
export interface PushNotice {
  path: string;
  headers: IncomingHttpHeaders;
  /** Claims of the VAPID token. */
  claims: Record<string, unknown>;
  /** `k` of the header: the relay's public key. */
  key: string;
  // biome-ignore lint/suspicious/noExplicitAny: each test knows what it sent
  payload: any;
  /** Bytes of the encrypted body. */
  size: number;
}

/** The subscription that a browser hands to a page. */
export interface Subscription {
  endpoint: string;
  keys: { p256dh: string; auth: string };
}

interface Answer {
  status: number;
  headers?: Record<string, string>;
}

/**
 * A push service on loopback. It verifies VAPID (RFC 8292) and decrypts (RFC 8291) with Node's own cryptography, which
 * shares nothing with the relay's; what it cannot verify or decrypt gets 400 and is listed in `faults`.
 */
export async function startPushService(onEnd: (work: () => void) => void = onTestFinished) {
  const devices = new Map<string, { ecdh: ReturnType<typeof createECDH>; auth: Buffer }>();
  const notices: PushNotice[] = [];
  const faults: string[] = [];
  const scripted = new Map<string, Answer[]>();
  const inFlight = new Map<string, number>();
  let mostInFlight = 0;
  let gate: Promise<void> | undefined;

  const server = createServer(async (request, response) => {
    const path = request.url ?? '';
    inFlight.set(path, (inFlight.get(path) ?? 0) + 1);
    mostInFlight = Math.max(mostInFlight, inFlight.get(path) ?? 0);
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk);
    const body = Buffer.concat(chunks);
    let answer: Answer = { status: 201 };
    try {
      const { claims, key } = await verify(request.headers);
      const payload = JSON.parse(decrypt(path, body));
      notices.push({ path, headers: request.headers, claims, key, payload, size: body.length });
      answer = scripted.get(path)?.shift() ?? answer;
    } catch (error) {
      faults.push(String(error));
      answer = { status: 400 };
    }
    await gate;
    inFlight.set(path, (inFlight.get(path) ?? 1) - 1);
    response.writeHead(answer.status, answer.headers).end();
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const origin = `http://127.0.0.1:${port}`;
  onEnd(() => {
    server.closeAllConnections();
    server.close();
  });

  async function verify({ authorization = '' }: IncomingHttpHeaders) {
    const [, token = '', key = ''] = /^vapid t=([\w.-]+), k=([\w-]+)$/.exec(authorization) ?? [];
    const point = Buffer.from(key, 'base64url');
    const [x, y] = [point.subarray(1, 33), point.subarray(33)].map((half) => half.toString('base64url'));
    const publicKey = createPublicKey({ key: { kty: 'EC', crv: 'P-256', x, y }, format: 'jwk' });
    const options = { audience: origin, algorithms: ['ES256'], requiredClaims: ['exp', 'sub'] };
    // A relay on a test clock lives in another time.
    const { payload } = await jwtVerify(token, publicKey, { ...options, clockTolerance: Number.MAX_SAFE_INTEGER });
    return { claims: payload as Record<string, unknown>, key };
  }

  function decrypt(path: string, body: Buffer): string {
    const device = devices.get(path);
    if (!device) throw new Error(`no subscription at ${path}`);
    const [salt, sender] = [body.subarray(0, 16), body.subarray(21, 21 + body.readUInt8(20))];
    const info = Buffer.concat([Buffer.from('WebPush: info\0'), device.ecdh.getPublicKey(), sender]);
    const secret = Buffer.from(hkdfSync('sha256', device.ecdh.computeSecret(sender), device.auth, info, 32));
    const key = Buffer.from(hkdfSync('sha256', secret, salt, 'Content-Encoding: aes128gcm\0', 16));
    const nonce = Buffer.from(hkdfSync('sha256', secret, salt, 'Content-Encoding: nonce\0', 12));
    const sealed = body.subarray(21 + sender.length);
    const decipher = createDecipheriv('aes-128-gcm', key, nonce).setAuthTag(sealed.subarray(-16));
    const plain = Buffer.concat([decipher.update(sealed.subarray(0, -16)), decipher.final()]);
    const end = plain.lastIndexOf(2);
    if (end < 0 || plain.subarray(end + 1).some((byte) => byte !== 0)) throw new Error('bad padding');
    return plain.subarray(0, end).toString('utf8');
  }

  return {
    origin,
    port,
    /** For `RELAY_PUSH_HOSTS`. */
    host: `127.0.0.1:${port}`,
    notices,
    faults,
    /** How many notices were on their way to one device at the same time, at most. */
    mostInFlight: () => mostInFlight,

    /** A new device, as its browser describes it. */
    subscription(): Subscription {
      const ecdh = createECDH('prime256v1');
      ecdh.generateKeys();
      const auth = randomBytes(16);
      const path = `/push/${createHash('sha256').update(auth).digest('hex').slice(0, 24)}`;
      devices.set(path, { ecdh, auth });
      const keys = { p256dh: ecdh.getPublicKey('base64url'), auth: auth.toString('base64url') };
      return { endpoint: origin + path, keys };
    },

    /** Answers the next notices of a device; 201 after that. */
    answer({ endpoint }: Subscription, ...answers: Answer[]): void {
      scripted.set(new URL(endpoint).pathname, answers);
    },

    /** Holds answers back until the returned function is called. */
    hold(): () => void {
      let release = () => {};
      gate = new Promise((resolve) => {
        release = resolve;
      });
      return () => {
        gate = undefined;
        release();
      };
    },

    /** The notices of a device, once there are `count`. */
    async noticesOf({ endpoint }: Subscription, count: number): Promise<PushNotice[]> {
      const own = () => notices.filter(({ path }) => endpoint.endsWith(path));
      await vi.waitFor(
        () => {
          if (own().length < count) throw new Error(`${own().length} of ${count} notices, faults: ${faults.join()}`);
        },
        { timeout: TIMEOUT, interval: POLL },
      );
      return own();
    },
  };
}

export type PushService = Awaited<ReturnType<typeof startPushService>>;
