import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import * as v from 'valibot';
import { describe, expect, it } from 'vitest';
import { DEVICE_ROWS, device } from '../../../lib/operations/device.ts';
import { inputOf } from '../../../lib/operations/input.ts';
import { inputSchemas } from '../../../lib/operations/json-schema.ts';

type Schema = { type?: string; description?: string; items?: Schema; properties?: Record<string, Schema> };

const named = DEVICE_ROWS.map((row) => [row.name, row] as const);

describe('the table of Device Control (contract 03 §5, §9)', () => {
  it('has 35 rows with names of their own', () => {
    expect(DEVICE_ROWS).toHaveLength(35);
    expect(new Set(DEVICE_ROWS.map(({ name }) => name)).size).toBe(35);
    expect(new Set(DEVICE_ROWS.map(({ method, path }) => method + path)).size).toBe(35);
  });

  it('lets /ping alone go on while the relay is frozen (contract 09 §3)', () => {
    expect(DEVICE_ROWS.filter(({ ignoresFreeze }) => ignoresFreeze)).toEqual([device.ping]);
  });

  it.each(named)('%s: hints belong to what acts, aliases to members', (_name, { effect, hints, aliases, input }) => {
    if (effect === 'read') expect(hints).toBeUndefined();
    for (const name of Object.values(aliases ?? {})) expect(input.entries).toHaveProperty(name);
  });
});

describe('JSON schemas (contract 09 §7)', () => {
  const undescribed = (properties: Record<string, Schema>, path = ''): string[] =>
    Object.entries(properties).flatMap(([name, { description, items, properties }]) => [
      ...(description ? [] : [`${path}${name}`]),
      ...undescribed({ ...properties, ...items?.properties }, `${path}${name}.`),
    ]);

  it.each(named)('%s: an object whose members are all described', async (name, row) => {
    const schema = (await inputSchemas([row])).get(name) as Schema;
    expect(schema).toMatchObject({ type: 'object', properties: { device: { type: 'string' } } });
    expect(schema).not.toHaveProperty('anyOf');
    expect(undescribed(schema.properties ?? {})).toEqual([]);
    expect(Object.keys(schema.properties ?? {})).toEqual(Object.keys(row.input.entries));
  });

  it('say what is required, the range and the default', async () => {
    const schemas = await inputSchemas([device.longPress, device.pressKey, device.sendIntent, device.screen]);
    expect([...schemas.values()]).toMatchObject([
      {
        properties: { x: { type: 'integer', minimum: 0 }, duration_ms: { minimum: 100, maximum: 3000, default: 500 } },
      },
      { required: ['key'], properties: { key: { enum: expect.arrayContaining(['home', 'back']) } } },
      { required: ['action'], properties: { extras: { type: 'object' } } },
      { properties: { include_bounds: { type: 'boolean', default: true } } },
    ]);
    expect(schemas.get('android_long_press')).not.toHaveProperty('$schema');
  });

  it('the package that makes them is loaded with the first one', async () => {
    const found: string[] = [];
    for (const room of ['lib', 'handlers', 'cli']) {
      const entries = await readdir(room, { recursive: true, withFileTypes: true });
      for (const { parentPath, name } of entries.filter((entry) => entry.name.endsWith('.ts'))) {
        const text = await readFile(join(parentPath, name), 'utf8');
        if (/from\s+'@valibot\/to-json-schema'/.test(text)) found.push(join(parentPath, name));
      }
    }
    expect(found).toEqual([]);
  });
});

describe('inputOf', () => {
  const parse = (row: (typeof DEVICE_ROWS)[number], raw: Record<string, unknown>) => {
    const { issues, output } = v.safeParse(row.input, inputOf(row, raw), { abortEarly: true });
    return issues ? issues[0].message : output;
  };

  it('reads a query as numbers and booleans (contract 03 §4.1)', () => {
    expect(parse(device.events, { limit: '5', since: ' 7 ' })).toEqual({ limit: 5, since: 7 });
    expect(parse(device.events, { limit: '', since: '0' })).toEqual({ limit: 50, since: 0 });
    expect(parse(device.screen, { include_bounds: 'FALSE' })).toEqual({ include_bounds: false });
    expect(parse(device.screen, { include_bounds: '' })).toEqual({ include_bounds: true });
    expect(parse(device.pressKey, { key: ' Home ' })).toEqual({ key: 'home' });
  });

  it('leaves what it cannot read to the schema', () => {
    expect(parse(device.events, { limit: 'many' })).toBe('limit must be an integer');
    expect(parse(device.events, { limit: '99999999999999999' })).toBe('limit must be an integer');
    expect(parse(device.events, { limit: 1.5 })).toBe('limit must be an integer');
    expect(parse(device.screen, { include_bounds: 'maybe' })).toBe('include_bounds must be true or false');
    expect(parse(device.eventStream, { enabled: 'true' })).toBe('enabled must be true or false');
    expect(parse(device.eventStream, {})).toBe('enabled must be true or false');
  });

  it('clamps what the contract clamps', () => {
    expect(parse(device.events, { limit: 0 })).toMatchObject({ limit: 1 });
    expect(parse(device.events, { limit: 501 })).toMatchObject({ limit: 500 });
    expect(parse(device.longPress, { x: 1, y: 1, duration: 99 })).toBe('duration must be 100 to 3000');
  });

  it('resolves aliases; the name of the schema wins', () => {
    expect(parse(device.describeNode, { node_id: ' w0:1 ' })).toEqual({ nodeId: 'w0:1' });
    expect(parse(device.describeNode, { node_id: 'w0:1', nodeId: 'w0:2' })).toEqual({ nodeId: 'w0:2' });
    expect(parse(device.describeNode, { node_id: 'w0:1', nodeId: null })).toEqual({ nodeId: 'w0:1' });
    expect(parse(device.sendMms, { to: '+1555', text: 'a' })).toMatchObject({ body: 'a' });
  });

  it('counts null as absent, in attachments too', () => {
    expect(parse(device.writeClipboard, { text: null })).toBe('missing text');
    expect(parse(device.shareMedia, { attachments: [{ path: null, token: 'a' }] })).toMatchObject({
      attachments: [{ token: 'a' }],
    });
  });

  it('changes neither the arguments nor what the prototype has', () => {
    const raw = Object.freeze({ node_id: 'w0:1', constructor: 5, ...JSON.parse('{"__proto__":{"nodeId":"x"}}') });
    expect(inputOf(device.describeNode, raw)).not.toHaveProperty('node_id');
    expect(parse(device.describeNode, JSON.parse('{"__proto__":{"nodeId":"x"}}'))).toBe('missing nodeId');
  });
});

describe('sentences of the schemas (contract 03 §5)', () => {
  it.each([
    [device.tap, {}, 'missing x'],
    [device.tap, { x: 1 }, 'missing y'],
    [device.tap, { x: -1, y: 1 }, 'x must not be negative'],
    [device.tap, { nodeId: 7 }, 'nodeId must be a string'],
    [device.tap, { x: 1, y: 1, duration_ms: 0 }, 'duration_ms must be 1 to 60000'],
    [device.longPress, { x: 1, y: 1, nodeId: 'w0:0' }, 'give either x and y or nodeId'],
    [device.tapText, { text: ' ' }, 'missing text'],
    [device.type, { text: 5 }, 'text must be a string'],
    [device.type, { text: '' }, 'missing text'],
    [device.swipe, {}, 'give start_x, start_y, end_x and end_y, or direction'],
    [device.swipe, { start_x: 1 }, 'missing start_y'],
    [device.swipe, { direction: 'in' }, 'direction must be up, down, left or right'],
    [device.scroll, {}, 'missing direction'],
    [device.pressKey, { key: '' }, 'missing key'],
    [device.pressKey, { key: 'toString' }, expect.stringMatching(/^unsupported key; one of home, back/)],
    [device.media, { action: 'rewind' }, 'unknown action'],
    [device.media, { action: 'volume' }, 'level must be 0 to 100'],
    [device.media, { action: 'volume', level: 101 }, 'level must be 0 to 100'],
    [device.sendIntent, { action: 'x', component: 'a/b/c' }, 'component must be package/class'],
    [device.sendIntent, { action: 'x', extras: [] }, 'extras must be an object'],
    [device.call, { number: '  ' }, 'missing number'],
    [device.call, { number: 'Ada' }, 'number cannot be called'],
    [device.sendSms, { to: '+1555' }, 'send_sms needs to and body'],
    [device.sendSms, { to: 'Ada', body: 'x' }, 'to is not a phone number'],
    [device.shareMedia, {}, 'nothing to share'],
    [device.shareMedia, { media: '/abs/path' }, 'malformed attachment'],
    [device.shareMedia, { attachments: ['tok'] }, 'malformed attachment'],
    [device.shareMedia, { attachments: [[]] }, 'malformed attachment'],
  ])('%# %o', (row, raw, sentence) => {
    const { issues } = v.safeParse(row.input as v.GenericSchema, inputOf(row, raw), { abortEarly: true });
    expect(issues?.[0]?.message).toEqual(sentence);
  });

  it('extras are strings', () => {
    const raw = { action: 'x', extras: { a: 'b', c: 1, d: true, e: {}, f: null } };
    const { extras } = v.parse(device.sendIntent.input, inputOf(device.sendIntent, raw));
    expect(extras).toEqual({ a: 'b', c: '1', d: 'true' });
  });
});
