import { expect, it } from 'vitest';
import { device, expectAlive, health, hostOf, portOf, STRANGER } from '../support/attacks.ts';
import { connectRaw, exchange, request } from '../support/raw-socket.ts';
import { authenticate, bearer, describeMatrix, type Target } from '../support/relay.ts';

const isInsecureAllowed = async (target: Target): Promise<boolean> =>
  (await (await target.operator('/relay/security')).json()).allow_insecure_api_bearer;

const TRICKS = [
  '/%70airing/mint',
  '/pairing%2fmint',
  '/pairing%2Fmint',
  '/pairing/%6dint',
  '//pairing/mint',
  '///pairing/mint',
  '/pairing//mint',
  '/pairing/mint/',
  '/pairing/mint//',
  '/./pairing/mint',
  '/pairing/./mint',
  '/x/../pairing/mint',
  '/%2e/pairing/mint',
  '/x/%2e%2e/pairing/mint',
  '/health/../pairing/mint',
  '/sessions/..%2fpairing%2fmint',
  '/sessions/..%2frelay%2fsecurity',
  '/sessions/../relay/security',
  '/health;/../relay/security',
  '/pairing;/mint',
  '/pairing/mint;x=1',
  '/;/pairing/mint',
  '/PAIRING/MINT',
  '/Pairing/Mint',
  '/pairing/mint%00',
  '/pairing/mint%20',
  '/pairing/mint.json',
  '/pairing\\mint',
  '\\pairing\\mint',
  '/\\pairing/mint',
  '/relay/security?x=/health',
  '/relay/security#/health',
  '/relay\t/security',
  '/relay/security\0',
  '/relay/security/',
  '/RELAY/SECURITY',
  '//127.0.0.1/relay/security',
  'http://127.0.0.1/relay/security',
  'http://localhost/pairing/mint',
  'HTTP://LOCALHOST/pairing/mint',
  'https://127.0.0.1/relay/security',
  'http://[::1]/pairing/mint',
  'ws://127.0.0.1/pairing/mint',
  'file:///pairing/mint',
  'relay/security',
  '?/pairing/mint',
  '*',
  '127.0.0.1:80',
  '%',
  '/%',
  '/%zz',
  '/%ff/%fe',
  '/sessions/%',
  `/${'a/'.repeat(3000)}`,
];

describeMatrix('attacks (contract 01)', (start, runtime) => {
  it('§1: a client that hangs up in the middle of a body causes no internal error', async () => {
    const target = await start();
    const { token, client } = await device(target);
    for (const [method, path] of [
      ['PATCH', '/sessions/abcd'],
      ['PUT', '/api/profiles/default/soul'],
      ['POST', '/phone/message'],
      ['POST', '/setup'],
      ['POST', '/desktop/desktop_terminal'],
    ] as const) {
      for (const length of [{ 'content-length': '20' }, { 'transfer-encoding': 'chunked' }] as Record<
        string,
        string
      >[]) {
        const raw = await connectRaw(portOf(target));
        raw.write(request(method, path, { host: hostOf(target), ...bearer(token), ...length }, '5\r\n{"a":'));
        raw.socket.end();
        await raw.ended();
      }
    }
    // Logged after everything above.
    await target.fetch('/relay/security', { headers: { 'x-forwarded-for': STRANGER } });
    await expect.poll(() => target.log.join('\n')).toMatch(/refused an operator call/);
    expect(target.log.filter((line) => line.includes('[ERROR]'))).toEqual([]);
    await expectAlive(client);
  });

  it.each(['GET', 'POST', 'PATCH', 'DELETE', 'HEAD', 'OPTIONS', 'CONNECT', 'pOST'])(
    '§1.3: no trick with the path of a %s gets a stranger past a guard',
    async (method) => {
      const target = await start();
      const victim = await device(target);
      const body = '{"allow_insecure_api_bearer":true,"code":"STOLEN","host":"192.0.2.1"}';
      for (const path of TRICKS) {
        const headers = {
          host: hostOf(target),
          'x-forwarded-for': STRANGER,
          'x-svc-operator': '1',
          'x-original-url': '/relay/security',
          'x-rewrite-url': '/relay/security',
          'x-http-method-override': 'PATCH',
          'content-length': String(body.length),
          connection: 'close',
        };
        const answer = await exchange(portOf(target), request(method, path, headers, body), method).catch(
          () => undefined,
        );
        // Only a CONNECT may be dropped without an answer. The edge platform itself refuses or drops what it does not
        // accept as HTTP: its answers lack the header that all of the relay's have.
        const isPlatform = runtime === 'edge' && answer?.headers['x-content-type-options'] === undefined;
        if (isPlatform) expect(answer?.status ?? 500, path).toBeGreaterThanOrEqual(400);
        else if (answer) expect([400, 401, 403, 404, 405, 426], `${method} ${path}`).toContain(answer.status);
        else expect(method, path).toBe('CONNECT');
      }
      expect(await isInsecureAllowed(target)).toBe(false);
      expect((await health(target)).sessions).toBe(1);
      if (runtime === 'node') expect(target.log.join('\n')).not.toMatch(/request failed|minted/);
      expect((await authenticate(target, { pairing_code: 'STOLEN' })).frame.type).toBe('auth.fail');
      await expectAlive(victim.client);
    },
  );
});
