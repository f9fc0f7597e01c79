import fc from 'fast-check';
import { expect, it, vi } from 'vitest';
import { createLog } from '../../../lib/log.ts';
import { openSessions } from '../../../lib/sessions/sessions.ts';
import { type AuthRequest, authenticate, readFirstFrame, refusalReason } from '../../../lib/socket/auth.ts';
import { createTestClock } from '../../support/clock.ts';
import { runs } from '../../support/runs.ts';
import { codesOf, limiterOf, sessionStores } from '../../support/states.ts';

const auth = (payload: unknown): string => JSON.stringify({ channel: 'system', type: 'auth', id: '1', payload });

function requestOf(payload: unknown): AuthRequest {
  const frame = readFirstFrame(auth(payload));
  if (frame.kind !== 'auth') throw new Error(frame.reason);
  return frame.request;
}

it.each([
  ['', 'Invalid message format'],
  ['nope', 'Invalid message format'],
  ['[]', 'Invalid message format'],
  ['null', 'Invalid message format'],
  ['7', 'Invalid message format'],
  ['{}', 'First message must be system/auth'],
  ['{"channel":"system","type":7}', 'First message must be system/auth'],
  ['{"channel":"system","type":"Auth"}', 'First message must be system/auth'],
  ['{"channel":"tui","type":"auth"}', 'First message must be system/auth'],
  ['{"channel":"system ","type":"auth"}', 'First message must be system/auth'],
])('contract 01 §3.6: %s: %s', (text, reason) => {
  expect(readFirstFrame(text)).toEqual({ kind: 'refused', reason });
});

it('contract 01 §3.3: an empty request describes an unknown device', () => {
  expect(requestOf(undefined)).toEqual({
    pairingCode: undefined,
    sessionToken: undefined,
    refreshToken: undefined,
    device: {
      name: 'Unknown device',
      id: 'unknown',
      model: '',
      platform: '',
      surface: 'unknown',
      formFactor: 'unknown',
    },
    typedStream: false,
  });
});

it('contract 01 §3.3: strings are trimmed, stripped of control characters and cut at 128', () => {
  const request = requestOf({
    pairing_code: ' ab12cd\n',
    session_token: '  token ',
    refresh_token: '\t',
    device_id: ` d\u0000-\u009f1${'x'.repeat(200)}`,
    device_name: '\u0007 \u001b ',
    device_hostname: ' host\u0085 ',
    device_model: 7,
    device_platform: `${'a'.repeat(127)}😀`,
    client_surface: 'Android',
    device_form_factor: 'xr',
  });
  expect(request.pairingCode).toBe('AB12CD');
  expect(request.sessionToken).toBe('token');
  expect(request.refreshToken).toBeUndefined();
  expect(request.device.id).toBe(`d-1${'x'.repeat(125)}`);
  expect(request.device.name).toBe('host');
  expect(request.device.model).toBe('');
  expect(request.device.platform).toHaveLength(128);
  expect(request.device.platform.isWellFormed()).toBe(true);
  expect(request.device.surface).toBe('unknown');
  expect(request.device.formFactor).toBe('xr');
});

it.each([
  [{ typed_stream_events: true }, true],
  [{ typed_stream_events: true, event_schema_version: 1 }, true],
  [{ typed_stream_events: true, typed_stream_event_schema_version: 1 }, true],
  [{ typed_stream_events: true, event_schema_version: 2 }, false],
  [{ typed_stream_events: true, event_schema_version: 2, typed_stream_event_schema_version: 1 }, false],
  [{ typed_stream_events: 1 }, false],
  [{ typed_stream_events: 'true' }, false],
  [{ event_schema_version: 1 }, false],
  [true, false],
  [[], false],
  [null, false],
])('contract 01 §3.3: supports %j: typed stream %s', (supports, typed) => {
  expect(requestOf({ supports }).typedStream).toBe(typed);
});

it('contract 01 §3.3: any first frame gives a request with clean strings or one of two refusals', () => {
  const value = fc.oneof(fc.string({ unit: 'binary', maxLength: 200 }), fc.jsonValue());
  const payload = fc.record(
    {
      pairing_code: value,
      session_token: value,
      refresh_token: value,
      device_id: value,
      device_name: value,
      device_hostname: value,
      device_model: value,
      device_platform: value,
      client_surface: value,
      device_form_factor: value,
      supports: value,
      ttl_seconds: value,
      grants: value,
    },
    { requiredKeys: [] },
  );
  fc.assert(
    fc.property(fc.oneof(payload.map(auth), fc.json().map(auth), fc.json(), fc.string({ unit: 'binary' })), (text) => {
      const frame = readFirstFrame(text);
      if (frame.kind === 'refused') {
        expect(['Invalid message format', 'First message must be system/auth']).toContain(frame.reason);
        return;
      }
      const { device, pairingCode, sessionToken, refreshToken } = frame.request;
      for (const described of [device.name, device.id, device.model, device.platform]) {
        expect(described.length).toBeLessThanOrEqual(128);
        expect(described.isWellFormed()).toBe(true);
        // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what must be gone
        expect(described).not.toMatch(/[\u0000-\u001f\u007f-\u009f]/);
      }
      expect(device.name).not.toBe('');
      expect(device.id).not.toBe('');
      for (const credential of [pairingCode, sessionToken, refreshToken]) expect(credential).not.toBe('');
    }),
    { numRuns: runs(1000) },
  );
});

it.each([
  [{}, 'Missing pairing code or session token'],
  [{ pairing_code: '' }, 'Missing pairing code or session token'],
  [{ pairing_code: 7, session_token: {} }, 'Missing pairing code or session token'],
  [{ session_token: 'x' }, 'Invalid session token'],
  [{ refresh_token: 'x' }, 'Invalid session token'],
  [{ session_token: 'x', refresh_token: 'x' }, 'Invalid session token'],
  [{ pairing_code: 'x' }, 'Invalid pairing code or session token'],
  [{ pairing_code: 'x', session_token: 'x', refresh_token: 'x' }, 'Invalid pairing code or session token'],
])('contract 01 §3.6: the reason follows from the credentials sent: %j', (payload, reason) => {
  expect(refusalReason(requestOf(payload))).toBe(reason);
});

async function createDeps() {
  const clock = createTestClock();
  const log = createLog('ERROR', () => {});
  const sessions = await openSessions({ ...sessionStores(), clock, log });
  return { clock, log, sessions, codes: await codesOf(clock, log), limiter: await limiterOf(clock) };
}

const PEER = { key: '192.0.2.1', transportHint: 'ws' as const };

it.each([
  [{}, { session: 1 }],
  [{ session_token: 'x' }, { session: 1 }],
  [{ refresh_token: 'x' }, { session: 1 }],
  [{ session_token: 'x', refresh_token: 'y' }, { session: 1 }],
  [{ pairing_code: 'x' }, { pairing: 1 }],
  [
    { pairing_code: 'x', session_token: 'x' },
    { pairing: 1, session: 1 },
  ],
  [
    { pairing_code: 'x', session_token: 'x', refresh_token: 'y' },
    { pairing: 1, session: 1 },
  ],
])('contract 01 §3.6: a refused %j counts %j, each bucket once', async (payload, expected) => {
  const deps = await createDeps();
  const fail = vi.spyOn(deps.limiter, 'fail');
  expect(await authenticate(deps, requestOf(payload), PEER)).toBeUndefined();
  const counted: Record<string, number> = {};
  for (const [key, bucket] of fail.mock.calls) {
    expect(key).toBe(PEER.key);
    counted[bucket] = (counted[bucket] ?? 0) + 1;
  }
  expect(counted).toEqual(expected);
});

it('contract 01 §3.4: a good session token comes before the refresh token and the code', async () => {
  const deps = await createDeps();
  await deps.codes.register('ABC123', {});
  const first = await authenticate(deps, requestOf({ pairing_code: 'abc123', device_id: 'd' }), PEER);
  await deps.codes.register('DEF456', {});
  const all = { session_token: first?.token, refresh_token: first?.refreshToken, pairing_code: 'DEF456' };
  const again = await authenticate(deps, requestOf({ ...all, device_id: 'd' }), PEER);
  expect(again).toEqual({ session: first?.session, token: first?.token, refreshToken: undefined });
  expect(await deps.codes.consume('DEF456')).toBeDefined();
});

it('contract 01 §3.4: a good refresh token comes before the code; a bad one leaves the code to be used', async () => {
  const deps = await createDeps();
  await deps.codes.register('ABC123', {});
  const first = await authenticate(deps, requestOf({ pairing_code: 'ABC123', device_id: 'd' }), PEER);
  await deps.codes.register('DEF456', {});
  const payload = { session_token: 'gone', pairing_code: 'DEF456', device_id: 'd' };
  const second = await authenticate(deps, requestOf({ ...payload, refresh_token: first?.refreshToken }), PEER);
  expect(second?.session.family).toBe(first?.session.family);
  expect(second?.token).not.toBe(first?.token);
  const third = await authenticate(deps, requestOf({ ...payload, refresh_token: 'bad' }), PEER);
  expect(third?.session.family).not.toBe(first?.session.family);
  expect(await deps.codes.consume('DEF456')).toBeUndefined();
});

it('contract 01 §4: success forgets the failures of the peer', async () => {
  const deps = await createDeps();
  for (let count = 0; count < 4; count++) await authenticate(deps, requestOf({ session_token: 'x' }), PEER);
  await deps.codes.register('ABC123', {});
  await authenticate(deps, requestOf({ pairing_code: 'ABC123' }), PEER);
  for (let count = 0; count < 4; count++) await authenticate(deps, requestOf({ session_token: 'x' }), PEER);
  expect(deps.limiter.blockedFor(PEER.key)).toBe(0);
  await authenticate(deps, requestOf({ session_token: 'x' }), PEER);
  expect(deps.limiter.blockedFor(PEER.key)).toBe(300);
});

it('contract 01 §11: a session ended while it was saved is refused and counted', async () => {
  const deps = await createDeps();
  await deps.codes.register('ABC123', {});
  const first = await authenticate(deps, requestOf({ pairing_code: 'ABC123' }), PEER);
  const coming = authenticate(deps, requestOf({ session_token: first?.token, device_name: 'New' }), PEER);
  const fail = vi.spyOn(deps.limiter, 'fail');
  if (first) await deps.sessions.revoke(first.session);
  expect(await coming).toBeUndefined();
  expect(fail).toHaveBeenCalledWith(PEER.key, 'session');
});
