import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { isNamed } from '../../../lib/desktop/identity.ts';
import { redact } from '../../../lib/desktop/redact.ts';
import { decide, replyTo, statusOf, summaryOf } from '../../../lib/desktop/response.ts';
import { readSelector } from '../../../lib/desktop/selection.ts';
import { isPrivateTool, isToolName, timeoutOf } from '../../../lib/desktop/tools.ts';

describe('redaction (contract 07 §2.3)', () => {
  it('nothing under a secret key survives, however deep', () => {
    const { tree } = fc.letrec<{ tree: Record<string, unknown> }>((tie) => ({
      tree: fc.oneof(
        { depthSize: 'small' },
        fc.dictionary(fc.constantFrom('password', 'auth_token', 'API-KEY'), fc.constantFrom('NEEDLE', ['NEEDLE'])),
        fc.dictionary(fc.string(), fc.oneof(fc.jsonValue(), tie('tree'), fc.array(tie('tree')))),
      ) as fc.Arbitrary<Record<string, unknown>>,
    }));
    fc.assert(fc.property(tree, (value) => !JSON.stringify(redact(value)).includes('NEEDLE')));
  });
});

describe('tools (contract 07 §2.3)', () => {
  it('names, times, and whose results are private', () => {
    for (const name of ['desktop_a', 'desktop__', `desktop_${'z'.repeat(64)}`]) expect(isToolName(name)).toBe(true);
    for (const name of ['desktop_', 'desktop_A', 'desktop_a\n', ' desktop_a', `desktop_${'z'.repeat(65)}`]) {
      expect(isToolName(name), name).toBe(false);
    }
    expect(
      ['desktop_zip', 'desktop_computer_status', 'desktop_adb_shell', 'desktop_usb_devices'].map(timeoutOf),
    ).toEqual([30_000, 180_000, 300_000, 300_000]);
    const secretive = [
      'desktop_read_file',
      'desktop_clipboard_read',
      'desktop_screenshot',
      'desktop_computer_screenshot',
    ];
    expect(secretive.every(isPrivateTool)).toBe(true);
    expect(isPrivateTool('desktop_clipboard_write')).toBe(false);
  });
});

describe('responses', () => {
  it('are what the desktop wrote, and who it was', () => {
    fc.assert(
      fc.property(fc.dictionary(fc.string(), fc.jsonValue(), { minKeys: 1 }), (payload) => {
        const text = JSON.stringify(payload);
        const read = JSON.parse(text);
        const reply = JSON.parse(replyTo({ payload: read, text }, { device_id: 'i', device_name: 'n"' }));
        expect(reply).toEqual({ target: { device_id: 'i', device_name: 'n"' }, ...read });
      }),
    );
  });

  it('of private results only their size is kept, in bytes', () => {
    const text = '{"request_id":"x","ok":true,"result": {"text":"ü"} }';
    const answer = { payload: JSON.parse(text), text };
    expect(summaryOf('desktop_clipboard_read', answer)).toBe('[13 bytes]');
    expect(summaryOf('desktop_zip', answer)).toBe('{"text":"ü"}');
    expect(summaryOf('desktop_screenshot', { payload: { result: null }, text: '' })).toBeNull();
  });

  it('an invalid status counts as missing', () => {
    for (const status of ['200', 200.5, null, {}]) {
      expect(decide({ payload: { status }, text: '' })).toBe('error');
      expect(statusOf({ payload: { status }, text: '' })).toBeNull();
    }
  });
});

describe('selectors (contract 07 §2.3)', () => {
  it.each([
    [{ device: ' a ', device_id: 'b' }, 'a'],
    [{ device: ' ', device_id: 'b' }, 'b'],
    [{ device: 5, device_id: null }, undefined],
    [{ deviceId: 'c' }, undefined],
    [Object.create({ device: 'inherited' }), undefined],
  ])('%j names %s', (values, selector) => expect(readSelector(values)).toBe(selector));

  it('nothing that has neither letters nor digits matches but itself', () => {
    expect(isNamed(['---', '!!!'], '???')).toBe(false);
    expect(isNamed(['---'], '---')).toBe(true);
    expect(isNamed(['AXIOM-DESKTOP'], 'axiom desktop')).toBe(true);
    expect(isNamed(['Ärger'], 'ÄRGER!')).toBe(true);
    expect(isNamed(['axiom-desktop'], 'axiom')).toBe(false);
  });
});
