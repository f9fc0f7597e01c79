import { expect, it, vi } from 'vitest';
import { cleanups, startBuiltTarget } from '../support/built-relay.ts';
import {
  connectRaw,
  exchange,
  frame,
  handshakeHeaders,
  OPCODE,
  openAuthenticated,
  openRaw,
  request,
  textFrame,
} from '../support/raw-socket.ts';
import { pair } from '../support/relay.ts';

const MiB = 1024 * 1024;
const pending = cleanups();

async function start() {
  const target = await startBuiltTarget();
  pending.push(target.stop);
  return target;
}

/** A relay with an authenticated raw socket, and a well-behaved device beside it. */
async function startWithSocket() {
  const target = await start();
  const { client, token } = await pair(target);
  pending.push(() => client.terminate());
  const raw = await openAuthenticated(target.port, { session_token: token });
  pending.push(raw.destroy);
  const honest = async () => {
    client.send('system', 'ping', {}, 'honest');
    expect((await client.next({ id: 'honest' })).type).toBe('pong');
  };
  /** Checks that the bad socket is gone and the other is not. */
  const onlyHonestLeft = async () => {
    await vi.waitFor(() => expect(target.relay.sockets.count()).toBe(1));
    await honest();
  };
  return { target, raw, honest, onlyHonestLeft };
}

const ping = (id: string) => textFrame('system', 'ping', {}, id);
const big = (bytes: number) => JSON.stringify({ channel: 'system', type: 'ping', payload: { x: 'x'.repeat(bytes) } });

it.each([
  ['reserved bit 1 (no extension was negotiated)', frame({ rsv: 4, payload: '{}' }), 1002],
  ['reserved bit 2', frame({ rsv: 2, payload: '{}' }), 1002],
  ['reserved bit 3', frame({ rsv: 1, payload: '{}' }), 1002],
  ['opcode 3', frame({ opcode: 3, payload: '{}' }), 1002],
  ['opcode 7', frame({ opcode: 7 }), 1002],
  ['opcode 11', frame({ opcode: 11 }), 1002],
  ['opcode 15', frame({ opcode: 15, payload: 'x' }), 1002],
  ['an unmasked text frame', frame({ masked: false, payload: '{}' }), 1002],
  ['an unmasked close', frame({ masked: false, opcode: OPCODE.close }), 1002],
  ['a fragmented ping', frame({ fin: false, opcode: OPCODE.ping }), 1002],
  ['a fragmented close', frame({ fin: false, opcode: OPCODE.close }), 1002],
  ['a ping of 126 bytes', frame({ opcode: OPCODE.ping, payload: 'x'.repeat(126) }), 1002],
  ['a continuation that continues nothing', frame({ opcode: OPCODE.continuation, payload: 'x' }), 1002],
  [
    'a new message inside a fragmented one',
    Buffer.concat([frame({ fin: false, payload: '{' }), frame({ payload: '}' })]),
    1002,
  ],
  ['a close payload of one byte', frame({ opcode: OPCODE.close, payload: '\x03' }), 1002],
  ['a length with its top bit set', frame({ length: 2n ** 63n + 1n, lengthBits: 64 }), 1009],
  ['a length beyond 2^53', frame({ length: 2n ** 60n, lengthBits: 64 }), 1009],
  ['invalid UTF-8', frame({ payload: Buffer.from([0xc3, 0x28]) }), 1007],
  ['overlong UTF-8', frame({ payload: Buffer.from([0xc0, 0x80]) }), 1007],
  ['a UTF-8 surrogate', frame({ payload: Buffer.from([0xed, 0xa0, 0x80]) }), 1007],
  [
    'a UTF-8 character that never ends',
    Buffer.concat([
      frame({ fin: false, payload: Buffer.from([0xe2, 0x82]) }),
      frame({ opcode: OPCODE.continuation, payload: 'x' }),
    ]),
    1007,
  ],
])('contract 02 §1.1: %s closes that socket only', async (_name, bytes, code) => {
  const { raw, onlyHonestLeft } = await startWithSocket();
  raw.write(bytes);
  expect((await raw.closing()).code).toBe(code);
  await onlyHonestLeft();
});

it.each([0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65_535])(
  'contract 02 §1.1: a close with the code %i, which may not be sent, is answered with 1002',
  async (code) => {
    const { raw, onlyHonestLeft } = await startWithSocket();
    const payload = Buffer.alloc(2);
    payload.writeUInt16BE(code);
    raw.write(frame({ opcode: OPCODE.close, payload }));
    expect((await raw.closing()).code).toBe(1002);
    await onlyHonestLeft();
  },
);

it.each([1000, 1001, 1011, 3000, 4999])('contract 02 §1.1: a close with the code %i is echoed', async (code) => {
  const { raw, onlyHonestLeft } = await startWithSocket();
  const payload = Buffer.alloc(2);
  payload.writeUInt16BE(code);
  raw.write(frame({ opcode: OPCODE.close, payload: Buffer.concat([payload, Buffer.from('done')]) }));
  expect((await raw.closing()).code).toBe(code);
  await raw.ended();
  await onlyHonestLeft();
});

it('contract 02 §1.1: a close with an invalid UTF-8 reason is answered with 1007', async () => {
  const { raw, onlyHonestLeft } = await startWithSocket();
  raw.write(frame({ opcode: OPCODE.close, payload: Buffer.from([0x03, 0xe8, 0xff, 0xff]) }));
  expect((await raw.closing()).code).toBe(1007);
  await onlyHonestLeft();
});

it('contract 02 §1.1: UTF-8 split anywhere over fragments is reassembled, with pings in between', async () => {
  const { raw } = await startWithSocket();
  const bytes = Buffer.from(JSON.stringify({ channel: 'system', type: 'ping', id: 'häß€😀', payload: { ts: '😀' } }));
  const parts = [...bytes].map((byte, index) =>
    Buffer.concat([
      frame({
        fin: index === bytes.length - 1,
        opcode: index === 0 ? OPCODE.text : OPCODE.continuation,
        payload: Buffer.from([byte]),
      }),
      index % 20 === 5 ? frame({ opcode: OPCODE.ping, payload: `p${index}` }) : Buffer.alloc(0),
    ]),
  );
  raw.write(Buffer.concat(parts));
  expect(await raw.frame()).toMatchObject({ opcode: OPCODE.pong, payload: Buffer.from('p5') });
  const pong = await raw.envelope();
  expect(pong).toEqual({ channel: 'system', type: 'pong', id: 'häß€😀', payload: { ts: '😀' } });
});

it('contract 02 §1.1: overlong length encodings and empty fragments are accepted', async () => {
  const { raw } = await startWithSocket();
  const payload = Buffer.from('{"channel":"system","type":"ping","id":"long"}');
  raw.write(frame({ payload, lengthBits: 64 }));
  expect((await raw.envelope()).id).toBe('long');
  raw.write(frame({ payload, lengthBits: 16 }));
  expect((await raw.envelope()).id).toBe('long');
  raw.write(frame({ fin: false, payload: '' }));
  raw.write(frame({ fin: false, opcode: OPCODE.continuation, payload }));
  raw.write(frame({ opcode: OPCODE.continuation, payload: '' }));
  expect((await raw.envelope()).id).toBe('long');
});

it('contract 02 §1.1: pings are answered with their payload, pongs and binary frames are ignored', async () => {
  const { raw } = await startWithSocket();
  raw.write(frame({ opcode: OPCODE.pong, payload: 'unasked' }));
  raw.write(frame({ opcode: OPCODE.binary, payload: Buffer.from([0xff, 0xfe]) }));
  raw.write(frame({ opcode: OPCODE.ping, payload: 'x'.repeat(125) }));
  const pong = await raw.frame();
  expect(pong).toEqual({
    fin: true,
    rsv: 0,
    opcode: OPCODE.pong,
    masked: false,
    payload: Buffer.from('x'.repeat(125)),
  });
});

it('contract 01 §3.7: an empty text frame is an invalid envelope, and the socket stays', async () => {
  const { raw } = await startWithSocket();
  raw.write(frame({ payload: '' }));
  expect(await raw.envelope()).toMatchObject({ type: 'error', payload: { error: 'invalid_request' } });
  raw.write(ping('still'));
  expect((await raw.envelope()).id).toBe('still');
});

it('contract 01 §3.1: 64 KiB on the wire before auth destroy the connection, whatever length was announced', async () => {
  const target = await start();
  const raw = await openRaw(target.port);
  pending.push(raw.destroy);
  const whole = frame({ length: 30 * MiB, lengthBits: 64, payload: Buffer.alloc(70 * 1024, 'x') });
  raw.write(whole.subarray(0, 60 * 1024));
  // A ping on another connection shows that the relay has had time to handle the earlier bytes.
  expect((await exchange(target.port, request('GET', '/health', { connection: 'close' }))).status).toBe(200);
  expect(raw.isOver()).toBe(false);
  raw.write(whole.subarray(60 * 1024));
  await raw.ended();
  await vi.waitFor(() => expect(raw.socket.destroyed).toBe(true));
});

it('contract 01 §3.1: the 64 KiB before auth count frames of every kind', async () => {
  const target = await start();
  for (const opcode of [OPCODE.ping, OPCODE.pong, OPCODE.binary]) {
    const raw = await openRaw(target.port);
    pending.push(raw.destroy);
    const one = frame({ opcode, payload: 'x'.repeat(125) });
    raw.write(Buffer.concat(Array.from({ length: 600 }, () => one)));
    await raw.ended();
  }
});

it('contract 01 §3.1: announcing over 40 MiB after auth yields 1009 at once', async () => {
  const { raw, onlyHonestLeft } = await startWithSocket();
  raw.write(frame({ length: 40 * MiB + 1, lengthBits: 64, payload: 'x' }));
  expect((await raw.closing()).code).toBe(1009);
  await onlyHonestLeft();
});

it('contract 01 §3.1: over 40 MiB in fragments yields 1009 at the announcement that exceeds it', async () => {
  const { raw, onlyHonestLeft } = await startWithSocket();
  raw.write(frame({ fin: false, payload: Buffer.alloc(1024, 'x') }));
  raw.write(frame({ fin: false, opcode: OPCODE.continuation, length: 40 * MiB, lengthBits: 64, payload: 'x' }));
  expect((await raw.closing()).code).toBe(1009);
  await onlyHonestLeft();
});

it('contract 02 §1.1: 4 MiB fit; more is refused on this channel, and the socket stays', async () => {
  const { raw, honest } = await startWithSocket();
  raw.write(frame({ payload: big(5 * MiB) }));
  expect(await raw.envelope()).toMatchObject({ type: 'error', payload: { error: 'message_too_large' } });
  raw.write(ping('after'));
  expect((await raw.envelope()).id).toBe('after');
  await honest();
});

it('contract 02 §1.1: a message of very many fragments closes its socket before memory fills', async () => {
  const { raw, onlyHonestLeft } = await startWithSocket();
  const parts = Array.from({ length: 20_000 }, (_, index) =>
    frame({ fin: false, opcode: index === 0 ? OPCODE.text : OPCODE.continuation, payload: 'x' }),
  );
  raw.write(Buffer.concat(parts));
  expect((await raw.closing()).code).toBe(1008);
  await onlyHonestLeft();
});

it('contract 01 §6.4: a device that revokes itself gets its answer before its socket closes', async () => {
  const target = await start();
  for (let round = 0; round < 5; round++) {
    const { client, token } = await pair(target);
    client.terminate();
    const raw = await openAuthenticated(target.port, { session_token: token });
    const http = await connectRaw(target.port);
    pending.push(raw.destroy, http.destroy);
    const order: string[] = [];
    raw.socket.once('data', () => order.push('close'));
    http.socket.once('data', () => order.push('answer'));
    http.write(request('DELETE', `/sessions/${token.slice(0, 8)}`, { authorization: `Bearer ${token}` }));
    expect((await http.response()).status).toBe(200);
    expect((await raw.closing()).code).toBe(4401);
    expect(order).toEqual(['answer', 'close']);
  }
});

it('contract 01 §3.3: handshake and first frames in one packet are served in order', async () => {
  const target = await start();
  const { client, token } = await pair(target);
  pending.push(() => client.terminate());
  const raw = await connectRaw(target.port);
  pending.push(raw.destroy);
  raw.write(
    Buffer.concat([
      request('GET', '/ws', handshakeHeaders()),
      textFrame('system', 'auth', { session_token: token }),
      ping('one'),
      ping('two'),
    ]),
  );
  expect((await raw.head()).status).toBe(101);
  expect((await raw.envelope()).type).toBe('auth.ok');
  expect((await raw.envelope()).id).toBe('one');
  expect((await raw.envelope()).id).toBe('two');
});

it('contract 01 §3.1: the handshake is answered for /ws and /, whatever the query and Origin', async () => {
  const target = await start();
  for (const path of ['/ws', '/', '/ws?token=x&y=%00', '/?a']) {
    const raw = await openRaw(target.port, { path, headers: { origin: 'https://evil.example' } });
    expect(raw.upgrade.headers.upgrade?.toLowerCase()).toBe('websocket');
    raw.destroy();
  }
});

it('RFC 6455 §4.2.2: the accept value follows from the key', async () => {
  const target = await start();
  const raw = await openRaw(target.port, { headers: { 'sec-websocket-key': 'dGhlIHNhbXBsZSBub25jZQ==' } });
  pending.push(raw.destroy);
  expect(raw.upgrade.headers['sec-websocket-accept']).toBe('s3pPLMBiTxaQ9kYGzzhZRbK+xOo=');
});

it('contract 01 §3.1: no sub-protocol is selected and no compression negotiated', async () => {
  const target = await start();
  const raw = await openRaw(target.port, {
    headers: {
      'sec-websocket-protocol': 'chat, superchat',
      'sec-websocket-extensions': 'permessage-deflate; client_max_window_bits, x-other',
    },
  });
  pending.push(raw.destroy);
  expect(raw.upgrade.headers).not.toHaveProperty('sec-websocket-protocol');
  expect(raw.upgrade.headers).not.toHaveProperty('sec-websocket-extensions');
});

/** Contract 01 §1: every error of the relay has the same JSON body and header. */
function expectError({ status, headers, body }: Awaited<ReturnType<typeof exchange>>, expected: number): void {
  expect({ status, body }).toMatchObject({ status: expected });
  expect(headers['content-type']).toBe('application/json');
  expect(headers['x-content-type-options']).toBe('nosniff');
  expect(JSON.parse(body)).toMatchObject({ ok: false, error: expect.any(String) });
}

it.each([
  ['no upgrade headers at all', {}],
  ['no key', { 'sec-websocket-key': undefined }],
  ['a key of the wrong length', { 'sec-websocket-key': 'c2hvcnQ=' }],
  ['a key that is not base64', { 'sec-websocket-key': '!!!!!!!!!!!!!!!!!!!!!!==' }],
  ['version 7', { 'sec-websocket-version': '7' }],
  ['version 99', { 'sec-websocket-version': '99' }],
  ['no version', { 'sec-websocket-version': undefined }],
])('contract 01 §3.1: GET /ws with %s: 426 with a JSON error', async (_name, change: Record<string, unknown>) => {
  const target = await start();
  const headers = Object.keys(change).length === 0 ? {} : { ...handshakeHeaders(), ...change };
  const sent = Object.fromEntries(Object.entries(headers).filter(([, value]) => value !== undefined));
  const answer = await exchange(target.port, request('GET', '/ws', sent as Record<string, string>));
  expectError(answer, 426);
  expect(answer.headers.upgrade).toBe('websocket');
  if ('sec-websocket-version' in change) expect(answer.headers['sec-websocket-version']).toBe('13');
});

it('contract 01 §1: an upgrade with POST is 405 with Allow', async () => {
  const target = await start();
  const answer = await exchange(target.port, request('POST', '/ws', handshakeHeaders()));
  expectError(answer, 405);
  expect(answer.headers.allow).toContain('GET');
});

it.each(['/nope', '/ws/x', '/wss', '//ws', '/WS', '/%77s', '/ws/../x'])(
  'contract 01 §3.1: an upgrade to %s: 404',
  async (path) => {
    const target = await start();
    expectError(await exchange(target.port, request('GET', path, handshakeHeaders())), 404);
    expect(target.relay.sockets.refusal('127.0.0.1')).toBeUndefined();
  },
);

it('RFC 9110 §7.8: an upgrade to h2c is served as plain HTTP', async () => {
  const target = await start();
  const headers = { connection: 'Upgrade, HTTP2-Settings', upgrade: 'h2c', 'http2-settings': 'AAMAAABkAAQAAP__' };
  const answer = await exchange(target.port, request('GET', '/health', headers));
  expect(answer.status).toBe(200);
  expect(JSON.parse(answer.body).status).toBe('ok');
  expectError(await exchange(target.port, request('GET', '/nope', headers)), 404);
  expectError(await exchange(target.port, request('GET', '/sessions', headers)), 401);
});

it('RFC 9110 §7.8: a request that offers h2c keeps its body', async () => {
  const target = await start();
  const body = '{"code":"ABC123"}';
  const headers = { connection: 'Upgrade', upgrade: 'h2c', 'content-length': String(body.length) };
  const answer = await exchange(target.port, request('POST', '/pairing/register', headers, body));
  expect({ status: answer.status, body: answer.body }).toMatchObject({ status: 200 });
});

it('contract 01 §1.3: an upgrade to h2c bypasses no guard', async () => {
  const target = await start();
  const headers = { connection: 'Upgrade', upgrade: 'h2c', 'x-forwarded-for': '203.0.113.9' };
  expectError(await exchange(target.port, request('GET', '/relay/security', headers)), 403);
});

it('contract 01 §3.1: partial handshakes hold nothing once they are gone', async () => {
  const target = await start();
  const whole = request('GET', '/ws', handshakeHeaders());
  const parts = await Promise.all(Array.from({ length: 20 }, () => connectRaw(target.port)));
  for (const [index, raw] of parts.entries()) raw.write(whole.subarray(0, Math.floor((whole.length * index) / 20)));
  for (const [index, raw] of parts.entries()) index % 2 === 0 ? raw.destroy() : raw.reset();
  const { client } = await pair(target);
  client.terminate();
  const sockets = await Promise.all(Array.from({ length: 16 }, () => openRaw(target.port)));
  for (const raw of sockets) raw.destroy();
});

it('contract 01 §3.1: a handshake may arrive one byte at a time', async () => {
  const target = await start();
  const raw = await connectRaw(target.port);
  pending.push(raw.destroy);
  for (const byte of request('GET', '/ws', handshakeHeaders())) {
    await new Promise((resolve) => raw.socket.write(Buffer.from([byte]), resolve));
  }
  expect((await raw.head()).status).toBe(101);
});

it('contract 01 §3.1: a client that leaves before its answer disturbs nobody', async () => {
  const { target, honest } = await startWithSocket();
  for (let index = 0; index < 20; index++) {
    const raw = await connectRaw(target.port);
    raw.write(request('GET', index % 2 ? '/nope' : '/ws', handshakeHeaders()));
    raw.reset();
  }
  await honest();
});
