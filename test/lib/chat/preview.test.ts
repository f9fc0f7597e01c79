import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { cutText, preview, previewObject } from '../../../lib/chat/preview.ts';
import { isSecretName } from '../../../lib/kit/secret-names.ts';

const CANARY = 'canary-3f1d';
const SECRET_NAMES = [
  'api_key',
  'Authorization',
  'PASSWORD',
  'refresh_token',
  'session_token',
  'token',
  'secret',
  'access_token',
  'apikey',
  'cookie',
  'Set-Cookie',
  'private_key',
  'github_token',
  'client_secret',
  'db_password',
  'OPENAI_API_KEY',
];

describe('preview and redaction (contract 02 §5.7)', () => {
  it.each(SECRET_NAMES)('a member %s is redacted, whatever its value', (name) => {
    for (const value of [CANARY, null, 5, { deep: CANARY }, [CANARY]]) {
      expect(preview({ [name]: value })).toEqual({ [name]: '[REDACTED]' });
    }
  });

  it.each(['tokens', 'total_tokens', 'max_tokens', 'secretary', 'cookies', 'password_hint'])(
    '%s is not secret',
    (name) => {
      expect(isSecretName(name)).toBe(false);
    },
  );

  it.each(['result', 'output', 'stdout', 'stderr'])('%s is renamed; an existing preview takes precedence', (name) => {
    expect(preview({ [name]: 'x' })).toEqual({ [`${name}_preview`]: 'x' });
    expect(preview({ [name]: 'x', [`${name}_preview`]: 'y' })).toEqual({ [`${name}_preview`]: 'y' });
    expect(preview({ [`${name}_preview`]: 'y', [name]: 'x' })).toEqual({ [`${name}_preview`]: 'y' });
    expect(preview([{ a: { [name]: { token: 1 } } }])).toEqual([
      { a: { [`${name}_preview`]: { token: '[REDACTED]' } } },
    ]);
  });

  it('strings are cut to 1600 characters', () => {
    expect(preview('x'.repeat(1600))).toBe('x'.repeat(1600));
    expect(preview('x'.repeat(1601))).toBe(`${'x'.repeat(1599)}…`);
    const cut = cutText(`${'x'.repeat(1598)}😀${'y'.repeat(10)}`);
    expect(cut).toHaveLength(1600);
    expect(cut.isWellFormed()).toBe(true);
  });

  it('arrays are cut to 20 elements and objects to eight levels; plain values stay', () => {
    expect(preview(Array.from({ length: 30 }, (_, index) => index))).toEqual(Array.from({ length: 20 }, (_, i) => i));
    const nest = (depth: number, leaf: unknown): unknown => (depth === 0 ? leaf : { a: nest(depth - 1, leaf) });
    expect(preview(nest(8, { b: 1 }))).toEqual(nest(8, { b: 1 }));
    expect(preview(nest(9, { b: 1 }))).toEqual(nest(9, '[TRUNCATED]'));
    expect(preview({ a: 1.5, b: true, c: null })).toEqual({ a: 1.5, b: true, c: null });
  });

  it('a member named __proto__ is a plain member', () => {
    const value = JSON.parse('{"__proto__":{"token":"t"},"hasOwnProperty":1,"constructor":"c"}');
    const shown = preview(value) as object;
    expect(Object.getPrototypeOf(shown)).toBe(Object.prototype);
    expect(JSON.stringify(shown)).toBe('{"__proto__":{"token":"[REDACTED]"},"hasOwnProperty":1,"constructor":"c"}');
    expect(previewObject({ constructor: 'x'.repeat(2000) }, 0, { text: 5 }).constructor).toHaveLength(1600);
  });

  const name = fc.oneof(fc.string({ maxLength: 8 }), fc.constantFrom('result', 'output', 'stdout_preview', 'stdout'));
  const long = fc.nat(1800).map((length) => 'x'.repeat(length));
  const leaf = fc.oneof(fc.string(), long, fc.double({ noNaN: true }), fc.boolean(), fc.constant(null));
  const value = fc.oneof(leaf, fc.dictionary(name, leaf, { maxKeys: 4 }), fc.array(leaf, { maxLength: 30 }));
  const layer = fc.oneof(
    fc.record({ name, beside: value }).map(({ name, beside }) => (inner: unknown) => ({ beside, [name]: inner })),
    value.map((beside) => (inner: unknown) => [inner, beside]),
  );
  const tree = fc
    .record({ core: value, layers: fc.array(layer, { maxLength: 12, size: 'max' }) })
    .map(({ core, layers }) => layers.reduce<unknown>((inner, wrap) => wrap(inner), core));

  function measure(value: unknown, depth = 0): { depth: number; nodes: number } {
    if (typeof value !== 'object' || value === null) {
      if (typeof value === 'string') expect(value.length).toBeLessThanOrEqual(1600);
      return { depth, nodes: 1 };
    }
    if (Array.isArray(value)) expect(value.length).toBeLessThanOrEqual(20);
    const inner = Object.values(value).map((child) => measure(child, depth + 1));
    return {
      depth: Math.max(depth, ...inner.map((child) => child.depth)),
      nodes: 1 + inner.reduce((sum, child) => sum + child.nodes, 0),
    };
  }

  const nodes = (value: unknown): number =>
    typeof value === 'object' && value !== null
      ? 1 + Object.values(value).reduce<number>((sum, child) => sum + nodes(child), 0)
      : 1;

  it('never grows, and stays within its bounds', () => {
    fc.assert(
      fc.property(tree, (value) => {
        const before = JSON.stringify(value);
        const shown = preview(value);
        const size = measure(shown);
        expect(size.depth).toBeLessThanOrEqual(9);
        expect(size.nodes).toBeLessThanOrEqual(nodes(value));
        expect(JSON.stringify(value)).toBe(before);
        expect(preview(shown)).toEqual(shown);
      }),
      { numRuns: 100 },
    );
  });

  it('no secret survives at any depth', () => {
    const wrap = fc.constantFrom(
      (inner: unknown) => ({ a: inner }),
      (inner: unknown) => [1, inner],
      (inner: unknown) => ({ output: inner }),
      (inner: unknown) => ({ output: 1, output_preview: inner }),
    );
    const secret = fc.record({ name: fc.constantFrom(...SECRET_NAMES), layers: fc.array(wrap, { maxLength: 12 }) });
    fc.assert(
      fc.property(secret, ({ name, layers }) => {
        const value = layers.reduce<unknown>((inner, layer) => layer(inner), { [name]: { x: [CANARY] } });
        expect(JSON.stringify(preview(value))).not.toContain(CANARY);
      }),
    );
  });
});
