import { randomBytes } from 'node:crypto';
import { expect, it } from 'vitest';
import { digestOf } from '../../lib/kit/sha256.ts';
import { closeFrame, decodeFrame } from '../../lib/reach/frames.ts';
import { newId, newToken } from '../../lib/reach/ids.ts';
import { encodeMessage } from '../../lib/reach/messages.ts';
import { BrokerPeer, describeBrokers } from '../support/broker.ts';

const MiB = 1024 * 1024;
const error = (code: string) => ({ type: 'error', protocol_version: 1, code });

describeBrokers('broker', (start, runtime) => {
  it('§7.2: answers health with aggregates, and nothing else', async () => {
    const broker = await start();
    const host = await broker.host();
    await broker.match(host);
    const idle = { ok: true, service: 'svc_reach', protocol_version: 1 };
    await expect
      .poll(async () => (await broker.fetch('/health')).json())
      .toEqual(runtime === 'node' ? { ...idle, hosts_online: 1, active_streams: 1 } : { ...idle, ...anyCounts });
    for (const [path, status] of [
      ['/v1/tunnel', 404],
      ['/', 404],
      ['/v1/connect/', 404],
      ['/v1/connect?token=x', 400],
      ['/v1/connect', 426],
    ] as const) {
      expect((await broker.fetch(path)).status, path).toBe(status);
    }
  });

  it('§7.2: refuses a query and an Authorization header before the upgrade', async () => {
    const broker = await start();
    const url = broker.connectUrl(broker.hosts[0].id);
    for (const peer of [new BrokerPeer(`${url}?token=x`), new BrokerPeer(url, { authorization: 'Bearer x' })]) {
      await expect(peer.opened).rejects.toThrow('400');
    }
    await expect(new BrokerPeer(url.replace('connect', 'tunnel')).opened).rejects.toThrow('404');
  });

  it('§7.3: refuses registrations with a code, then 1008 without a reason', async () => {
    const broker = await start();
    const [{ id, token }] = broker.hosts;
    const good = { role: 'host', host_id: id, connection_id: newId(), credential_kind: 'host', token };
    const whole = { type: 'register', protocol_version: 1, ...good };
    const cases: [string, string | Uint8Array][] = [
      ['unauthorized', new Uint8Array(3)],
      ['unauthorized', 'hello'],
      ['unauthorized', JSON.stringify({ ...whole, extra: 1 })],
      ['unauthorized', JSON.stringify({ ...whole, token: newToken() })],
      ['unauthorized', `${JSON.stringify(whole)}${' '.repeat(4096)}`],
      ['unsupported_version', JSON.stringify({ ...whole, protocol_version: 2 })],
    ];
    for (const [code, message] of cases) {
      const peer = new BrokerPeer(broker.connectUrl(id));
      await peer.opened;
      peer.send(message);
      expect(await peer.next()).toEqual(error(code));
      expect(await peer.closed()).toBe(1008);
    }
    const unknown = await broker.register({ host_id: newId(), role: 'host', credential_kind: 'host', token });
    expect(await unknown.next()).toEqual(error('unauthorized'));
    expect(await unknown.closed()).toBe(1008);
  });

  it('§7.3: has an answer for each client, in the order of the checks', async () => {
    const broker = await start();
    const { id } = broker.hosts[0];
    const host = await broker.host();
    const route = await broker.publish(host);
    const bootstrap = await broker.publish(host, { uses: 1 });
    const answer = async (message: Parameters<typeof broker.register>[0]) => {
      const peer = await broker.register(message);
      const { type, code } = await peer.next();
      return code ?? type;
    };
    const connection_id = newId();
    expect(await answer({ host_id: id, token: newToken() })).toBe('unauthorized');
    expect(await answer({ host_id: broker.hosts[1].id, token: route })).toBe('unauthorized');
    expect(await answer({ host_id: id, token: route, credential_kind: 'bootstrap' })).toBe('unauthorized');
    expect(await answer({ host_id: id, token: route, connection_id })).toBe('matched');
    expect(await answer({ host_id: id, token: route, connection_id })).toBe('replayed');
    expect(await answer({ host_id: id, token: bootstrap, credential_kind: 'bootstrap' })).toBe('matched');
    expect(await answer({ host_id: id, token: bootstrap, credential_kind: 'bootstrap' })).toBe('replayed');
    const second = await broker.register({ ...registration(broker.hosts[0]) });
    expect(await second.next()).toEqual(error('host_busy'));
    host.socket.close();
    await host.closed();
    await expect.poll(() => answer({ host_id: id, token: route })).toBe('host_offline');
  });

  it('§7.5: carries bytes both ways, and closes in both directions', async () => {
    const broker = await start();
    const host = await broker.host();
    const { client, id } = await broker.match(host);
    const other = await broker.match(host);
    client.send(Buffer.from('up'));
    expect(decodeFrame(await host.next(), false)).toMatchObject({
      type: 'data',
      streamId: id,
      payload: Buffer.from('up'),
    });
    host.data(id, 'down');
    expect(await client.next()).toEqual(Buffer.from('down'));
    host.data(id, 'last');
    host.send(closeFrame(id));
    expect(await client.next()).toEqual(Buffer.from('last'));
    expect(await client.closed()).toBe(1000);
    // A race: the host may not know of an end yet.
    host.data(id, 'late');
    other.client.send(new Uint8Array());
    expect(decodeFrame(await host.next(), false)).toEqual({ type: 'close', streamId: other.id });
    expect(await other.client.closed()).toBe(1000);
    const text = await broker.match(host);
    text.client.send('text');
    expect(await text.client.next()).toEqual(error('unauthorized'));
    expect(decodeFrame(await host.next(), false)).toEqual({ type: 'close', streamId: text.id });
  });

  it('§7.5: closes a host that breaks the protocol, with its clients; another host is not disturbed', async () => {
    const broker = await start();
    const bystander = await broker.host(1);
    const token = await broker.publish(bystander);
    const other = await broker.match(bystander, token, 1);
    for (const [frame, code] of [
      [new Uint8Array(17), 'quota_exceeded'],
      [new Uint8Array(MiB + 19), 'quota_exceeded'],
      [Uint8Array.of(1, 2, ...new Uint8Array(16)), 'unauthorized'],
      [Uint8Array.of(1, 2, ...Buffer.from(other.id, 'base64url'), 66), 'unauthorized'],
      ['{"type":"publish_route"}', 'unauthorized'],
    ] as const) {
      const host = await broker.host();
      const { client } = await broker.match(host);
      host.send(frame);
      expect(await host.next()).toEqual(error(code));
      expect([await host.closed(), await client.closed()]).toEqual([1008, 1001]);
    }
    bystander.data(other.id, 'still here');
    expect(await other.client.next()).toEqual(Buffer.from('still here'));
  });

  it('§7.1: credentials and consumed bootstraps survive a restart', async () => {
    const broker = await start();
    const host = await broker.host();
    const route = await broker.publish(host);
    const bootstrap = await broker.publish(host, { uses: 2 });
    const spent = await broker.publish(host, { uses: 1 });
    for (const token of [bootstrap, spent]) {
      expect(await (await broker.client(token, 'bootstrap')).next()).toMatchObject({ type: 'matched' });
      await host.next();
    }
    await broker.restart();
    const again = await broker.host();
    expect(await (await broker.client(spent, 'bootstrap')).next()).toEqual(error('replayed'));
    await broker.match(again, route);
    expect(await (await broker.client(bootstrap, 'bootstrap')).next()).toMatchObject({ type: 'matched' });
    expect(await (await broker.client(bootstrap, 'bootstrap')).next()).toEqual(error('replayed'));
  });

  it('§7.4: replaces and revokes routes', async () => {
    const broker = await start();
    const host = await broker.host();
    const first = await broker.publish(host, { credential: 'device' });
    const { client, id } = await broker.match(host, first);
    const second = await broker.publish(host, { credential: 'device' });
    expect(await (await broker.client(first)).next()).toEqual(error('unauthorized'));
    host.send(encodeMessage({ type: 'revoke', credential_kind: 'route', credential_id: 'device' }));
    const answers = [await host.next(), await host.next()];
    expect(answers.find((answer) => answer.type === 'revoked')).toEqual({
      type: 'revoked',
      protocol_version: 1,
      credential_kind: 'route',
      credential_id: 'device',
    });
    const frame = answers.find((answer) => Buffer.isBuffer(answer)) ?? Buffer.alloc(0);
    expect(decodeFrame(frame, false)).toEqual({ type: 'close', streamId: id });
    expect(await client.closed()).toBe(1000);
    expect(await (await broker.client(second)).next()).toEqual(error('unauthorized'));
  });

  it('§7.6: moves 4 MiB both ways at once under flow control, in order', async () => {
    const broker = await start();
    const host = await broker.host(0, 262_144);
    const { client, id } = await broker.match(host);
    const down = randomBytes(4 * MiB);
    const up = randomBytes(4 * MiB);
    for (let at = 0; at < up.length; at += 100_000) client.send(up.subarray(at, at + 100_000));
    const received: Buffer[] = [];
    const wanted = async () => {
      const chunks: Buffer[] = [];
      for (let size = 0; size < down.length; ) {
        const chunk = await client.next();
        chunks.push(chunk);
        size += chunk.length;
      }
      return Buffer.concat(chunks);
    };
    const arrived = wanted();
    let credit = 262_144;
    let at = 0;
    for (let size = 0; size < up.length || at < down.length; ) {
      for (; at < down.length && credit >= 65_536; at += 65_536, credit -= 65_536) {
        host.data(id, down.subarray(at, at + 65_536));
      }
      const frame = decodeFrame(await host.next(), true);
      if (frame.type === 'window') credit += frame.credit;
      if (frame.type !== 'data') continue;
      received.push(Buffer.from(frame.payload));
      size += frame.payload.length;
      const grant = Buffer.alloc(22);
      Buffer.from(closeFrame(id)).copy(grant);
      grant[1] = 8;
      grant.writeUInt32BE(frame.payload.length, 18);
      host.send(grant);
    }
    expect(Buffer.concat(received).equals(up)).toBe(true);
    expect((await arrived).equals(down)).toBe(true);
  });

  it('§7.7: shows neither tokens, digests, whole IDs nor payloads in its log', async () => {
    const broker = await start();
    const host = await broker.host();
    const token = await broker.publish(host);
    const { client } = await broker.match(host, token);
    client.send(Buffer.from('a secret payload'));
    await host.next();
    await (await broker.client(newToken())).closed();
    const [{ id, token: hostToken }] = broker.hosts;
    await expect.poll(() => broker.log.join('\n')).toContain(id.slice(0, 6));
    const log = broker.log.join('\n');
    for (const secret of [token, digestOf(token), hostToken, digestOf(hostToken), id, 'secret payload']) {
      expect(log).not.toContain(secret);
    }
  });

  if (runtime === 'node') {
    it('§7.7: answers 429 over 30 attempts of one source, by the header of a proxy on loopback', async () => {
      const broker = await start();
      const from = (address: string) => new BrokerPeer(broker.connectUrl(''), { 'x-client-ip': `spoofed, ${address}` });
      for (let attempt = 0; attempt < 30; attempt++) {
        const peer = from('192.0.2.1');
        await peer.opened;
        peer.socket.terminate();
      }
      await expect(from('192.0.2.1').opened).rejects.toThrow('429');
      await from('192.0.2.2').opened;
    });

    it('§7.7: ends a socket that sends 64 KiB before it has registered', async () => {
      const broker = await start();
      const peer = new BrokerPeer(broker.connectUrl(''));
      await peer.opened;
      peer.send(new Uint8Array(MiB));
      expect(await peer.next()).toEqual(error('unauthorized'));
      await peer.closed();
    });
  }
});

/** At the edge, hosts of other cases count too. */
const anyCounts = { hosts_online: expect.any(Number), active_streams: expect.any(Number) };

const registration = ({ id, token }: { id: string; token: string }) =>
  ({ host_id: id, role: 'host', credential_kind: 'host', token }) as const;
