import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { parseEnvelope } from '../../../lib/socket/envelope.ts';
import { readHead } from '../../../lib/socket/envelope-head.ts';
import { runs } from '../../support/runs.ts';

const KiB = 1024;
const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);

/** The same three members of a parsed envelope, to compare a head with. */
function parsed(text: string) {
  const message = parseEnvelope(text);
  return message && { channel: message.channel, type: message.type, id: message.id };
}

const NAMES = ['channel', 'type', 'id', 'payload', 'x', '', '__proto__', 'chan"nel', 'ty\\pe'];
const blank = fc.stringMatching(/^[ \t\n\r]{0,3}$/);

/** A string literal of a text, with some characters escaped that need not be. */
const literal = (text: fc.Arbitrary<string>): fc.Arbitrary<string> =>
  fc.tuple(text, fc.infiniteStream(fc.boolean())).map(([value, escaped]) => {
    const units = [...Array(value.length).keys()].map((at) => {
      const plain = JSON.stringify(value.charAt(at)).slice(1, -1);
      const isEscaped = escaped.next().value;
      return isEscaped ? `\\u${value.charCodeAt(at).toString(16).padStart(4, '0')}` : plain;
    });
    return `"${units.join('')}"`;
  });

const name = fc.oneof({ weight: 4, arbitrary: fc.constantFrom(...NAMES) }, fc.string({ maxLength: 8 }));
const scalar = fc.oneof(
  literal(fc.string({ unit: 'binary', maxLength: 12 })),
  literal(fc.constantFrom('system', 'tui', 'a"b', '{', '}', ',', '\\', ']:[')),
  fc.constantFrom('true', 'false', 'null', '0', '-1.5e+3', '{}', '[]', '""'),
);

/** JSON text with blanks, escapes, nesting and members of the same name. */
const { value: json } = fc.letrec<{ value: string; members: string; object: string }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 4, depthIdentifier: 'json' },
    scalar,
    tie('object'),
    fc.array(tie('value'), { maxLength: 4, depthIdentifier: 'json' }).map((items) => `[${items.join(' ,')}]`),
  ),
  members: fc.tuple(blank, literal(name), blank, blank, tie('value'), blank).map(([a, key, b, c, value, d]) => {
    return `${a}${key}${b}:${c}${value}${d}`;
  }),
  object: fc
    .array(tie('members'), { maxLength: 6, depthIdentifier: 'json' })
    .map((members) => `{${members.join(',')}}`),
}));
const envelope = fc
  .array(
    fc.tuple(
      fc.oneof({ weight: 3, arbitrary: fc.constantFrom('channel', 'type', 'id') }, name),
      fc.oneof({ weight: 2, arbitrary: literal(fc.string({ minLength: 1, maxLength: 10 })) }, json),
    ),
    { maxLength: 8 },
  )
  .chain((members) =>
    fc.tuple(
      blank,
      fc.tuple(...members.map(([key, value]) => literal(fc.constant(key)).map((text) => `${text}:${value}`))),
    ),
  )
  .map(([space, members]) => `${space}{${members.join(`${space},`)}}${space}`);

describe('the head of a message (contract 02 §1.1)', () => {
  it('is what JSON.parse finds, in any envelope that ends within 4 KiB', () => {
    let envelopes = 0;
    fc.assert(
      fc.property(envelope, (text) => {
        fc.pre(bytes(text).length <= 4 * KiB);
        const expected = parsed(text);
        if (expected) envelopes++;
        const ids = (JSON.parse(text) as { id?: unknown }).id;
        const hasId = typeof ids === 'string' && ids.length >= 1 && ids.length <= 256;
        for (const frame of [text, bytes(text)]) {
          const head = readHead(frame);
          if (head && expected && !hasId) expect(head).toEqual({ ...expected, id: expect.any(String) });
          else expect(head).toEqual(expected);
        }
      }),
      { numRuns: runs(3000) },
    );
    expect(envelopes).toBeGreaterThan(runs(200));
  });

  it('is what JSON.parse finds, whatever follows after 4 KiB', () => {
    const front = fc.tuple(
      literal(fc.string({ minLength: 1, maxLength: 20 })),
      literal(fc.string({ minLength: 1, maxLength: 20 })),
      literal(fc.string({ minLength: 1, maxLength: 20 })),
    );
    fc.assert(
      fc.property(front, json, fc.nat(8 * KiB), ([channel, type, id], value, padding) => {
        const filler = `"${'é'.repeat(padding)}"`;
        const text = `{"channel":${channel},"type":${type},"id":${id},"payload":[${filler},${value}]}`;
        const expected = parsed(text);
        expect(expected).not.toBeNull();
        expect(readHead(text)).toEqual(expected);
        expect(readHead(bytes(text))).toEqual(expected);
      }),
    );
  });

  it('survives any text and any bytes', () => {
    fc.assert(fc.property(fc.string({ unit: 'binary' }), (text) => void readHead(`{"channel":${text}`)));
    fc.assert(fc.property(fc.uint8Array(), (frame) => void readHead(frame)));
    for (const text of ['', '{', '{"', '{"a', '{"a\\', '{"a"', '{"a":', '{"a":[', '{"a":"\\', '{"a":{"b":"', '{,']) {
      expect(readHead(text)).toBeNull();
    }
  });

  it('is none when channel or type lie after 4 KiB, are cut there, or are no texts', () => {
    const filler = 'x'.repeat(4 * KiB);
    for (const text of [
      `{"payload":"${filler}","channel":"tui","type":"x"}`,
      `{"channel":"tui","payload":{"a":"${filler}"},"type":"x"}`,
      `{"channel":"tui","type":"${filler}"}`,
      `${' '.repeat(4 * KiB)}{"channel":"tui","type":"x"}`,
      `{"channel":7,"type":"x","payload":"${filler}"}`,
      `{"channel":"tui","type":"x","channel":null,"payload":"${filler}"}`,
      `\ufeff{"channel":"tui","type":"x","payload":"${filler}"}`,
      `[{"channel":"tui","type":"x","payload":"${filler}"}]`,
    ]) {
      expect(readHead(text)).toBeNull();
      expect(readHead(bytes(text))).toBeNull();
    }
  });

  it('has a new id when the client’s lies after 4 KiB', () => {
    const head = readHead(`{"channel":"tui","type":"x","payload":"${'x'.repeat(4 * KiB)}","id":"mine"}`);
    expect(head).toEqual({ channel: 'tui', type: 'x', id: expect.not.stringMatching('mine') });
  });

  it('counts the 4 KiB in bytes, and does not mind a character that is cut', () => {
    const start = '{"channel":"tui","type":"x",';
    for (let length = 4 * KiB - 3; length <= 4 * KiB + 3; length++) {
      const text = `${start}"y":"${'é'.repeat((length - start.length) >> 1)}","type":"late"}`;
      expect(readHead(text)).toEqual(readHead(bytes(text)) && { channel: 'tui', type: 'x', id: expect.any(String) });
    }
  });
});
