import fc from 'fast-check';
import { expect, it } from 'vitest';
import { digestOf } from '../../../lib/kit/sha256.ts';
import { newId, newToken } from '../../../lib/reach/ids.ts';
import {
  encodeMessage,
  type HostMessage,
  MAX_CONTROL,
  parseBrokerMessage,
  parseClientAnswer,
  parseHostMessage,
  parseRegister,
  type Register,
} from '../../../lib/reach/messages.ts';

const register = (change: Partial<Register> = {}): Register => ({
  role: 'client',
  host_id: newId(),
  connection_id: newId(),
  credential_kind: 'route',
  token: newToken(),
  ...change,
});
const text = (message: object) => JSON.stringify(message);
const registration = (change: object = {}) => ({ type: 'register', protocol_version: 1, ...register(), ...change });
const without = (message: object, key: string) => {
  const { [key as never]: _, ...rest } = message as Record<string, unknown>;
  return rest;
};

it('§7.3: a registration of every role and kind is read', () => {
  for (const role of ['host', 'client'] as const) {
    for (const kind of ['host', 'bootstrap', 'route'] as const) {
      const message = register({ role, credential_kind: kind });
      const fits = (role === 'host') === (kind === 'host');
      expect(parseRegister(encodeMessage({ type: 'register', ...message }))).toEqual(fits ? message : 'unauthorized');
    }
  }
});

it('§7.3: a registration with a missing, extra or wrong member is unauthorized', () => {
  for (const key of Object.keys(registration())) {
    expect(parseRegister(text(without(registration(), key)))).toBe('unauthorized');
    for (const wrong of [null, '', 7, true, [], {}]) {
      if (key === 'protocol_version' && wrong === 7) continue;
      expect(parseRegister(text(registration({ [key]: wrong })))).toBe('unauthorized');
    }
  }
  const wrong = [
    registration({ extra: 1 }),
    registration({ host_id: `${'A'.repeat(21)}B` }),
    registration({ token: 'x'.repeat(31) }),
    registration({ token: 'x'.repeat(513) }),
    registration({ protocol_version: '1' }),
  ];
  for (const message of wrong) expect(parseRegister(text(message))).toBe('unauthorized');
  expect(parseRegister('[1]')).toBe('unauthorized');
  expect(parseRegister(text(registration()) + ' '.repeat(MAX_CONTROL))).toBe('unauthorized');
  // The limit counts bytes, not characters.
  expect(parseRegister(text(registration({ token: '€'.repeat(512) })))).toMatchObject({ role: 'client' });
  expect(parseRegister(`${text(registration())}${'\u2003'.repeat(1300)}`)).toBe('unauthorized');
});

it('§7.3: only a registration of the right shape has an unsupported version', () => {
  for (const version of [0, 2, 1.5, -1]) {
    expect(parseRegister(text(registration({ protocol_version: version })))).toBe('unsupported_version');
    expect(parseRegister(text(registration({ protocol_version: version, extra: 1 })))).toBe('unauthorized');
  }
});

const bootstrap = {
  type: 'publish_bootstrap' as const,
  pairing_id: 'pairing',
  token_sha256: digestOf('t'),
  expires_at: 1_780_000_000,
  max_uses: 4,
};
const route = {
  type: 'publish_route' as const,
  credential_id: newId(),
  token_sha256: digestOf('t'),
  expires_at: 1_780_000_000,
  device_id_hash: digestOf('device'),
};
const revoke = { type: 'revoke' as const, credential_kind: 'route' as const, credential_id: newId() };
const flow = { type: 'flow' as const, window: 262_144 };

it('§7.4: control messages of a host are read, and refused with any member missing, extra or wrong', () => {
  for (const message of [bootstrap, route, revoke, flow] as HostMessage[]) {
    const whole = JSON.parse(encodeMessage(message));
    expect(parseHostMessage(text(whole))).toEqual(message);
    expect(parseHostMessage(text({ ...whole, extra: 1 }))).toBeNull();
    for (const key of Object.keys(whole)) {
      expect(parseHostMessage(text(without(whole, key)))).toBeNull();
      for (const wrong of [null, '', true, [], {}, 'x'.repeat(129)]) {
        expect(parseHostMessage(text({ ...whole, [key]: wrong }))).toBeNull();
      }
    }
  }
  for (const max_uses of [0, 9, 1.5, '4', -1]) {
    expect(parseHostMessage(text({ ...bootstrap, protocol_version: 1, max_uses }))).toBeNull();
  }
  for (const type of ['register', 'toString', '__proto__', 'published']) {
    expect(parseHostMessage(text({ ...revoke, protocol_version: 1, type }))).toBeNull();
  }
  expect(parseHostMessage(text({ ...revoke, protocol_version: 2 }))).toBeNull();
});

it('§7.4: expires_at is a number or RFC 3339 text with a zone', () => {
  const at = (expires_at: unknown) => {
    const message = parseHostMessage(text({ ...bootstrap, protocol_version: 1, expires_at }));
    return message?.type === 'publish_bootstrap' ? message.expires_at : null;
  };
  expect(at('2026-05-28T20:26:40Z')).toBe(1_780_000_000);
  expect(at('2026-05-28T22:26:40.500+02:00')).toBe(1_780_000_000.5);
  expect(at('2026-05-28t20:26:40z')).toBe(1_780_000_000);
  expect(at(1_780_000_000.25)).toBe(1_780_000_000.25);
  const wrong = ['2026-05-28T20:26:40', '2026-02-30T20:26:40Z', '2026-05-28', '2026-05-28T24:00:00Z', 'tomorrow'];
  for (const value of [...wrong, '2026-13-01T00:00:00Z', `2026-05-28T20:26:40.${'0'.repeat(60)}Z`, true, null]) {
    expect(at(value)).toBeNull();
  }
});

it('§6.4: messages of the broker are read by a host', () => {
  const id = newId();
  const messages = [
    { type: 'registered' },
    { type: 'registered', flow: { version: 1, window: 262_144 } },
    { type: 'published', credential_kind: 'bootstrap', pairing_id: 'p' },
    { type: 'published', credential_kind: 'route', credential_id: 'c' },
    { type: 'revoked', credential_kind: 'route', credential_id: 'c' },
    { type: 'open', stream_id: id, host_connection_id: id },
    { type: 'error', code: 'host_busy' },
  ] as const;
  for (const message of messages) {
    expect(parseBrokerMessage(encodeMessage(message))).toEqual(message);
    expect(parseBrokerMessage(text({ ...message, protocol_version: 1, extra: 1 }))).toEqual(message);
    expect(parseBrokerMessage(text({ ...message, protocol_version: 2 }))).toBeNull();
  }
  expect(parseBrokerMessage(text({ type: 'registered', protocol_version: 1, flow: { version: 2 } }))).toEqual({
    type: 'registered',
  });
  for (const wrong of [
    { type: 'open', stream_id: 'x', host_connection_id: id },
    { type: 'matched', stream_id: id },
    {},
  ]) {
    expect(parseBrokerMessage(text({ ...wrong, protocol_version: 1 }))).toBeNull();
  }
});

it('§7.3: a client reads matched and error strictly', () => {
  const id = newId();
  for (const answer of [{ type: 'matched', stream_id: id } as const, { type: 'error', code: 'expired' } as const]) {
    expect(parseClientAnswer(encodeMessage(answer))).toEqual(answer);
    expect(parseClientAnswer(text({ ...answer, protocol_version: 1, extra: 1 }))).toBeNull();
    expect(parseClientAnswer(text(answer))).toBeNull();
  }
});

it('§7.3: no text makes a parser throw', () => {
  const seeds = [registration(), { ...bootstrap, protocol_version: 1 }, { ...route, protocol_version: 1 }, revoke];
  const mutated = fc
    .tuple(fc.constantFrom(...seeds), fc.dictionary(fc.constantFrom(...Object.keys(route), 'type'), fc.anything()))
    .map(([seed, change]) => {
      try {
        return JSON.stringify({ ...seed, ...change }) ?? '';
      } catch {
        return '';
      }
    });
  fc.assert(
    fc.property(fc.oneof(fc.string(), fc.json(), mutated), (message) => {
      parseRegister(message);
      parseHostMessage(message);
      parseBrokerMessage(message);
      parseClientAnswer(message);
    }),
  );
});
