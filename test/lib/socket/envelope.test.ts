import fc from 'fast-check';
import { expect, it } from 'vitest';
import { encodeEnvelope, isLongerThan, parseEnvelope } from '../../../lib/socket/envelope.ts';
import { runs } from '../../support/runs.ts';

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;
const isObject = (value: unknown): boolean => typeof value === 'object' && value !== null && !Array.isArray(value);

it('contract 02 §1.2: an envelope keeps channel, type, id and payload', () => {
  const text = '{"channel":"tui","type":"tui.attach","id":"a","payload":{"cols":80},"profiles":null}';
  expect(parseEnvelope(text)).toEqual({
    channel: 'tui',
    type: 'tui.attach',
    id: 'a',
    payload: { cols: 80 },
    badPayload: false,
  });
});

it.each([
  ['', 'no JSON'],
  ['{', 'no JSON'],
  ['null', 'null'],
  ['[]', 'a list'],
  ['[{"channel":"a","type":"b"}]', 'a list'],
  ['"{}"', 'a text'],
  ['1', 'a number'],
  ['{}', 'nothing'],
  ['{"channel":"a"}', 'no type'],
  ['{"type":"a"}', 'no channel'],
  ['{"channel":null,"type":"a"}', 'a null channel'],
  ['{"channel":"a","type":7}', 'a type that is a number'],
  ['{"channel":["a"],"type":"a"}', 'a channel in a list'],
  ['{"__proto__":{"channel":"a","type":"b"}}', 'channel and type on a prototype'],
])('contract 01 §3.7: %s is no envelope (%s)', (text) => {
  expect(parseEnvelope(text)).toBeNull();
});

it.each([
  ['', UUID],
  ['a', /^a$/],
  ['x'.repeat(256), /^x{256}$/],
  ['x'.repeat(257), UUID],
  [null, UUID],
  [7, UUID],
  [{}, UUID],
  [['a'], UUID],
])('contract 02 §1.2: the id %j becomes %s', (id, expected) => {
  expect(parseEnvelope(JSON.stringify({ channel: 'a', type: 'b', id }))?.id).toMatch(expected);
});

it.each([
  ['{"channel":"a","type":"b"}', false],
  ['{"channel":"a","type":"b","payload":null}', false],
  ['{"channel":"a","type":"b","payload":{}}', false],
  ['{"channel":"a","type":"b","payload":[]}', true],
  ['{"channel":"a","type":"b","payload":"x"}', true],
  ['{"channel":"a","type":"b","payload":0}', true],
  ['{"channel":"a","type":"b","payload":false}', true],
])('contract 02 §1.4: the payload of %s counts as {}, and as bad: %s', (text, bad) => {
  expect(parseEnvelope(text)).toMatchObject({ payload: {}, badPayload: bad });
});

it('contract 02 §1.2: any text gives an envelope of the right types or null, never an error', () => {
  const member = fc.oneof(fc.string({ unit: 'binary' }), fc.jsonValue());
  const shaped = fc
    .record({ channel: member, type: member, id: member, payload: member }, { requiredKeys: [] })
    .map((value) => JSON.stringify(value));
  fc.assert(
    fc.property(fc.oneof(shaped, fc.json(), fc.string({ unit: 'binary' })), (text) => {
      const message = parseEnvelope(text);
      if (message === null) return;
      expect(typeof message.channel).toBe('string');
      expect(typeof message.type).toBe('string');
      expect(message.id.length).toBeGreaterThanOrEqual(1);
      expect(message.id.length).toBeLessThanOrEqual(256);
      expect(isObject(message.payload)).toBe(true);
    }),
    { numRuns: runs(1000) },
  );
});

it('contract 02 §1.2: what is encoded is read back', () => {
  const payload = fc.dictionary(
    fc.string().filter((key) => key !== '__proto__'),
    fc.jsonValue().map((value) => JSON.parse(JSON.stringify(value))),
  );
  const id = fc.string({ minLength: 1, maxLength: 256 }).filter((text) => text.length <= 256);
  fc.assert(
    fc.property(fc.string(), fc.string(), payload, id, (channel, type, body, name) => {
      const text = encodeEnvelope(channel, type, body, name);
      expect(Object.keys(JSON.parse(text))).toEqual(['channel', 'type', 'id', 'payload']);
      expect(parseEnvelope(text)).toEqual({
        channel,
        type,
        id: name,
        payload: JSON.parse(JSON.stringify(body)),
        badPayload: false,
      });
    }),
  );
});

it('contract 02 §7: extra members stand beside the payload', () => {
  expect(JSON.parse(encodeEnvelope('pairing', 'profiles.updated', { profiles: [] }, 'i', { profiles: [] }))).toEqual({
    channel: 'pairing',
    type: 'profiles.updated',
    id: 'i',
    payload: { profiles: [] },
    profiles: [],
  });
});

it('contract 01 §3.1: lengths are UTF-8 bytes', () => {
  fc.assert(
    fc.property(fc.string({ unit: 'binary', maxLength: 40 }), fc.nat(130), (text, limit) => {
      expect(isLongerThan(text, limit)).toBe(Buffer.byteLength(text) > limit);
    }),
    { numRuns: runs(1000) },
  );
  expect(isLongerThan('\ud800', 2)).toBe(true);
  expect(isLongerThan('\ud800', 3)).toBe(false);
});
