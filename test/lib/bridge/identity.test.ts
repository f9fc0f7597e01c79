import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { aliasesOf, identify, normalise } from '../../../lib/bridge/identity.ts';
import { matching, onlyMatch, readSelector } from '../../../lib/bridge/selection.ts';
import type { Device } from '../../../lib/sessions/session.ts';

const device = (more: Partial<Device> = {}): Device => ({
  name: 'Unknown device',
  id: 'unknown',
  model: '',
  platform: '',
  surface: 'unknown',
  formFactor: 'unknown',
  ...more,
});

describe('identity (contract 03 §1.2)', () => {
  it('the session first, then what the phone says, then its socket', () => {
    const status = { device: { id: 'p3', deviceId: 'p2', device_id: ' ' }, device_id: 'flat', device_name: 'Flat' };
    expect(identify(device({ id: 's', name: 'S' }), status, '9')).toMatchObject({
      id: 's',
      source: 'session',
      name: 'S',
    });
    expect(identify(device(), status, '9')).toMatchObject({ id: 'p2', source: 'payload', name: 'Flat' });
    expect(identify(device({ id: '' }), { deviceId: 'flat' }, '9')).toMatchObject({ id: 'flat', name: 'flat' });
    expect(identify(device(), status, '9', (id) => id !== 'p2')).toMatchObject({ id: 'ws-9', source: 'socket' });
    expect(identify(device(), { device: 'text', id: 5 }, '9')).toMatchObject({ id: 'ws-9', name: 'ws-9' });
    for (const key of ['display_name', 'displayName', 'name', 'model']) {
      expect(identify(device(), { device: { [key]: 'N', model: 'M' } }, '9').name).toBe(key === 'model' ? 'M' : 'N');
    }
  });

  it.each([
    [
      { id: 'a-1', name: 'BOOX Note', surface: 'android', formFactor: 'unknown' },
      ['boox', 'notemax', 'note', 'tablet'],
    ],
    [{ id: 'a-1', name: 'O n-y/x', surface: 'unknown', formFactor: 'unknown' }, ['boox', 'notemax', 'note', 'tablet']],
    [{ id: 'Pixel 9', name: 'Mine', surface: 'unknown', formFactor: 'unknown' }, ['phone', 'fold', 'pixel']],
    [{ id: 'x', name: 'y', surface: 'unknown', formFactor: 'phone' }, ['phone']],
    [{ id: 'x', name: 'y', surface: 'unknown', formFactor: 'eink' }, ['tablet']],
    [{ id: 'x', name: 'y', surface: 'unknown', formFactor: 'boox' }, ['boox', 'notemax', 'note', 'tablet']],
    [{ id: 'x', name: 'y', surface: 'desktop', formFactor: 'xr' }, []],
  ])('aliases of %j', (who, added) => {
    const own = [who.id, who.name, normalise(who.id), normalise(who.name)];
    expect(aliasesOf(who)).toEqual([...new Set([...own, ...added])].sort());
  });

  it('aliases are sorted, unique and not empty, and each finds its device', () => {
    fc.assert(
      fc.property(fc.string(), fc.string(), fc.constantFrom('phone', 'tablet', 'unknown'), (id, name, formFactor) => {
        const aliases = aliasesOf({ id, name, surface: 'unknown', formFactor });
        expect(aliases).toEqual([...new Set(aliases)].sort());
        expect(aliases).not.toContain('');
        const one = { aliases };
        for (const alias of aliases) expect(matching([one], alias)).toEqual([one]);
        if (name.trim() !== '' && normalise(name) !== '')
          expect(matching([one], `${name.toUpperCase()}!`)).toEqual([one]);
      }),
    );
  });
});

describe('selectors (contract 03 §3)', () => {
  it.each([
    [{ device: 'a', device_id: 'b' }, undefined, 'a'],
    [{ device: ' ', device_id: ' b ', deviceId: 'c' }, undefined, 'b'],
    [{}, { device: '', deviceId: 'c' }, 'c'],
    [{ deviceId: 'q' }, { device: 'b' }, 'q'],
    [{ deviceId: 'q' }, { device: 5 }, 'q'],
    [{}, { device: 'a', device_id: 5 }, 'a'],
    [{}, { device: null, device_id: false, deviceId: 0 }, undefined],
    [{}, {}, undefined],
  ])('%j and %j name %s', (query, body, selector) => {
    expect(readSelector(query as Record<string, string>, body)).toBe(selector);
  });

  it.each([5, true, [], {}])('%j is no selector', (value) => {
    expect(() => readSelector({}, { device_id: value })).toThrow('device selector must be a string');
  });

  it('nothing that normalises to nothing matches', () => {
    const devices = [{ aliases: aliasesOf({ id: '---', name: '!!!', surface: '', formFactor: '' }) }];
    expect(() => onlyMatch(devices, '???')).toThrow('Unknown bridge device selector: ???');
    expect(onlyMatch(devices, '---')).toBe(devices[0]);
    expect(() => onlyMatch([...devices, ...devices], '---')).toThrow('Ambiguous bridge device selector: ---');
  });
});
