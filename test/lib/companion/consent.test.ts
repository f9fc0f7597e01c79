import { describe, expect, it, vi } from 'vitest';
import type { SafetySettings } from '../../../lib/companion/safety-settings.ts';
import { wordsIn } from '../../../lib/companion/text.ts';
import { BANK, createStaticPhone, createTestPhone, DENIAL, rect, uiNode } from './support.ts';

const SMS = { to: '+15550100', body: 'hello' };

/** A phone that shows the basket of the shop, with a "Pay" button. */
async function atTheTill(settings: Partial<SafetySettings> = {}, answer: boolean | 'later' = true) {
  const phone = createTestPhone({ destructiveVerbs: [], ...settings }, { answer });
  await phone.device.launch('org.example.shop');
  await phone.ok('POST', '/tap_text', { text: 'Kettle' });
  await phone.ok('POST', '/tap_text', { text: 'Buy now' });
  await phone.settings.update({ destructiveVerbs: ['pay', 'send', 'buy'] });
  const found = (await phone.ok('POST', '/find_nodes', { text: 'Pay' })).matches as { nodeId: string }[];
  return { ...phone, pay: found[0]?.nodeId as string };
}

describe('destructive words (contract 03 §8.3)', () => {
  it.each([
    ['Send', ['send']],
    ['sender', []],
    ['resend', []],
    ['SEND it, then pay', ['send', 'pay']],
    ['pay-now', ['pay']],
    ['pay_now', []],
    ['ïpay', []],
    ['«pay»', ['pay']],
    ['', []],
  ])('%j contains %j', (text, words) => {
    expect(wordsIn(text, ['send', 'pay', ' ', ''])).toEqual(words);
  });

  it('matches special characters in a word literally', () => {
    expect(wordsIn('a.c? abc', ['a.c?'])).toEqual(['a.c?']);
    expect(wordsIn('abc', ['a.c'])).toEqual([]);
    expect(wordsIn('jetzt löschen', ['Löschen'])).toEqual(['löschen']);
  });

  it.each(['/tap_text', '/type'])('%s checks its text', async (path) => {
    const phone = createTestPhone({}, { answer: false });
    const { status, result, blocked } = await phone.call('POST', path, { text: 'Delete all' });
    expect({ status, blocked }).toEqual({ status: 403, blocked: true });
    expect(result).toMatchObject(DENIAL);
    expect(result.instruction).toContain('do not retry this intent by other means');
    expect(phone.person.asked).toMatchObject([{ verb: 'delete', timeoutMs: 28_000 }]);
  });

  it.each(['/tap', '/long_press'])('%s checks the label of the node', async (path) => {
    const phone = await atTheTill({}, false);
    phone.person.asked.length = 0;
    expect((await phone.call('POST', path, { nodeId: phone.pay })).result).toMatchObject(DENIAL);
    expect(phone.person.asked).toMatchObject([{ verb: 'pay', detail: `${path.slice(1)}: Pay` }]);
  });

  it.each(['/tap', '/long_press'])('%s checks the label at the coordinates', async (path) => {
    const phone = await atTheTill({}, false);
    const { bounds } = await phone.ok('POST', '/describe_node', { nodeId: phone.pay });
    const { centerX: x, centerY: y } = bounds as Record<string, number>;
    expect((await phone.call('POST', path, { x, y })).result).toMatchObject(DENIAL);
  });

  it.each(['/tap', '/long_press'])('%s checks the hint if there is one', async (path) => {
    const phone = await atTheTill({}, false);
    expect((await phone.call('POST', path, { x: 1, y: 1, text: 'Send' })).result).toMatchObject(DENIAL);
  });

  it('the hint of the caller does not hide the label', async () => {
    const phone = await atTheTill({}, false);
    for (const path of ['/tap', '/long_press']) {
      const answer = await phone.call('POST', path, { nodeId: phone.pay, text: 'harmless' });
      expect(answer.result).toMatchObject({ ...DENIAL, detail: `${path.slice(1)}: harmless (Pay)` });
    }
  });

  it('/tap_text checks the full labels that it may match', async () => {
    const phone = await atTheTill({}, false);
    for (const text of ['Pa', 'AY']) {
      expect((await phone.call('POST', '/tap_text', { text })).result).toMatchObject(DENIAL);
    }
    // The text of the whole label is shown once.
    expect((await phone.call('POST', '/tap_text', { text: 'pay' })).result.detail).toBe('tap_text: pay');
    phone.person.asked.length = 0;
    // An exact match excludes labels that only contain the text.
    await phone.ok('POST', '/press_key', { key: 'home' });
    await phone.ok('POST', '/tap_text', { text: 'Notes' });
    expect(phone.person.asked).toEqual([]);
    expect((await phone.call('POST', '/tap_text', { text: 'Buy' })).status).toBe(403);
  });

  it('checks the labels inside a row that is tapped as a whole', async () => {
    const root = uiNode({
      bounds: rect(0, 0, 100, 200),
      clickable: true,
      children: [uiNode({ text: 'Buy', bounds: rect(0, 0, 100, 50) })],
    });
    const phone = createStaticPhone(root);
    phone.person.answer = false;
    expect((await phone.call('POST', '/tap', { nodeId: 'w0:0' })).result).toMatchObject(DENIAL);
    expect((await phone.call('POST', '/tap', { x: 50, y: 150 })).result).toMatchObject(DENIAL);
    expect(phone.gestures).toEqual([]);
  });

  it('does not ask about harmless text, nor on other routes', async () => {
    const phone = createTestPhone({}, { answer: false });
    await phone.call('POST', '/tap_text', { text: 'sender' });
    await phone.ok('POST', '/clipboard', { text: 'delete' });
    await phone.ok('POST', '/find_nodes', { text: 'buy' });
    expect(phone.person.asked).toEqual([]);
  });

  it('does not ask when the word list is empty', async () => {
    const phone = await atTheTill({});
    await phone.settings.update({ destructiveVerbs: [] });
    await phone.ok('POST', '/tap', { nodeId: phone.pay });
    expect(phone.person.asked).toEqual([]);
  });
});

describe('the question (contract 03 §8.4)', () => {
  it('a command that is allowed runs and reports `confirmed`', async () => {
    const phone = await atTheTill();
    expect(await phone.ok('POST', '/tap', { nodeId: phone.pay })).toMatchObject({ duration_ms: 100, confirmed: true });
    expect(await phone.ok('POST', '/find_nodes', { text: 'Thank you' })).toMatchObject({ count: 1 });
    expect(phone.phone.activity()[1]).toMatchObject({ path: '/tap', decision: 'confirmed' });
  });

  it.each([
    [10, 10_000],
    [30, 28_000],
    [60, 28_000],
    [1, 10_000],
    [20, 20_000],
  ])('with a setting of %i s, silence is a denial after %i ms', async (confirmationTimeoutSeconds, waited) => {
    const phone = createTestPhone({ confirmationTimeoutSeconds }, { answer: 'later' });
    const answer = vi.fn();
    const done = phone.call('POST', '/send_sms', SMS).then(answer);
    await phone.clock.advanceAsync(waited - 1);
    expect(answer).not.toHaveBeenCalled();
    await phone.clock.advanceAsync(1);
    await done;
    expect(answer.mock.calls[0]?.[0]).toMatchObject({ status: 403, result: DENIAL });
    phone.person.open[0]?.(true);
    await phone.clock.advanceAsync(0);
    expect(phone.system.outbox).toEqual([]);
  });

  it('time already spent shortens the wait', async () => {
    let clock: ReturnType<typeof createTestPhone>['clock'] | undefined;
    const { device } = createTestPhone();
    const windows = async () => {
      clock?.advance(20_000);
      return [{ packageName: 'x', root: uiNode({ text: 'Pay' }) }];
    };
    const slow = { ...device, windows };
    const phone = createTestPhone({ confirmationTimeoutSeconds: 60 }, { device: slow, answer: false });
    clock = phone.clock;
    await phone.call('POST', '/tap', { x: 5, y: 5 });
    expect(phone.person.asked[0]?.timeoutMs).toBe(8000);
  });

  it('23.3.4: a relay that waits for the owner gives the time that the owner has set', async () => {
    const slow = async () => {
      phone.clock.advance(59_000);
      return true;
    };
    const phone = createTestPhone({ confirmationTimeoutSeconds: 60 }, { confirm: slow });
    const command = { requestId: 'r', method: 'POST', path: '/send_sms', body: SMS } as const;
    const refused = await phone.phone.handle({ ...command, ownerAsked: async () => null });
    expect(refused.result).toMatchObject(DENIAL);
    expect(phone.system.outbox).toEqual([]);
    expect(await phone.phone.handle({ ...command, ownerAsked: async () => 150_000 })).toMatchObject({ status: 200 });
    expect(phone.system.outbox).toHaveLength(1);
  });

  it('a yes after 29 s has no effect', async () => {
    const late = async () => {
      phone.clock.advance(29_001);
      return true;
    };
    const phone = createTestPhone({}, { confirm: late });
    expect((await phone.call('POST', '/send_sms', SMS)).result).toMatchObject(DENIAL);
    expect(phone.system.outbox).toEqual([]);
  });

  it.each([
    ['rejects', () => Promise.reject(new Error('no overlay'))],
    [
      'throws',
      () => {
        throw new Error('no overlay');
      },
    ],
    ['returns something else', async () => 'yes'],
    ['returns null', async () => null],
  ])('a confirmation surface that %s is a denial', async (_, confirm) => {
    const phone = createTestPhone({}, { confirm: confirm as unknown as () => Promise<boolean> });
    expect((await phone.call('POST', '/send_sms', SMS)).result).toMatchObject(DENIAL);
  });

  it('without a safety manager destructive text is denied', async () => {
    const phone = createTestPhone({}, { confirm: undefined });
    expect((await phone.call('POST', '/type', { text: 'send' })).result).toMatchObject(DENIAL);
  });

  it('several questions may be open, each with its own answer', async () => {
    const phone = createTestPhone({}, { answer: 'later' });
    const first = phone.call('POST', '/send_sms', { ...SMS, body: 'one' });
    const second = phone.call('POST', '/send_sms', { ...SMS, body: 'two' });
    await phone.clock.advanceAsync(0);
    expect(new Set(phone.person.asked.map(({ requestId }) => requestId)).size).toBe(2);
    phone.person.open[1]?.(true);
    phone.person.open[0]?.(false);
    expect((await first).status).toBe(403);
    expect((await second).status).toBe(200);
    expect(phone.system.outbox).toMatchObject([{ text: 'two' }]);
  });

  it('is a single line without invisible characters (01 §3.3)', async () => {
    const phone = createTestPhone({}, { answer: false });
    await phone.call('POST', '/type', { text: 'send \u001b[2J\n\u202e!' });
    expect(phone.person.asked[0]?.detail).toBe('type: send [2J !');
  });

  it('closing the phone is a denial', async () => {
    const phone = createTestPhone({}, { answer: 'later' });
    const answer = phone.call('POST', '/send_sms', SMS);
    await phone.clock.advanceAsync(0);
    phone.phone.close();
    expect((await answer).result).toMatchObject(DENIAL);
    expect(phone.clock.pending).toBe(0);
  });
});

describe('a yes overrides nothing (contract 03 §8.3)', () => {
  it.each([
    [
      'master toggle',
      (phone: ReturnType<typeof createTestPhone>) => phone.settings.update({ masterEnabled: false }),
      'bridge_disabled',
    ],
    [
      'capability',
      (phone: ReturnType<typeof createTestPhone>) => phone.settings.update({ capabilities: {} }),
      'bridge_capability_denied',
    ],
    ['blocklist', (phone: ReturnType<typeof createTestPhone>) => phone.device.launch(BANK), `blocked package ${BANK}`],
  ])('%s, changed while the question is open', async (_, change, expected) => {
    const phone = createTestPhone({}, { answer: 'later' });
    const answer = phone.call('POST', '/send_sms', SMS);
    await phone.clock.advanceAsync(0);
    await change(phone);
    phone.person.open[0]?.(true);
    const { status, result } = await answer;
    expect(status).toBe(403);
    expect([result.error_code, result.error]).toContain(expected);
    expect(phone.system.outbox).toEqual([]);
  });

  it('does not apply to whatever has replaced the button', async () => {
    const phone = await atTheTill({}, 'later');
    const answer = phone.call('POST', '/tap', { nodeId: phone.pay });
    await phone.clock.advanceAsync(0);
    await phone.device.global('home');
    phone.person.open[0]?.(true);
    expect((await answer).result).toMatchObject(DENIAL);
  });
});

describe('trusted verbs (contract 03 §8.3)', () => {
  it('skip the question when all words are trusted', async () => {
    const phone = createTestPhone({ trustedVerbs: [' Send ', 'PAY'] }, { answer: false });
    expect((await phone.call('POST', '/type', { text: 'send and pay' })).status).toBe(400);
    expect((await phone.call('POST', '/type', { text: 'send and delete' })).status).toBe(403);
    expect(phone.person.asked).toMatchObject([{ verb: 'send, delete' }]);
  });

  it.each([
    ['/send_sms', 'send_sms', SMS],
    ['/call', 'call', { number: '+15550100' }],
    ['/share_media', 'share_media', { text: 'x' }],
    ['/send_mms', 'send_mms', { to: '+15550100' }],
  ])('%s skips the question by its own verb only', async (path, verb, body) => {
    const words = createTestPhone({ trustedVerbs: ['send', 'sms', 'share', 'pay'] }, { answer: false });
    expect((await words.call('POST', path, body)).result).toMatchObject(DENIAL);
    const trusted = createTestPhone({ trustedVerbs: [verb] }, { answer: false });
    expect(await trusted.ok('POST', path, body)).not.toHaveProperty('confirmed');
    expect(trusted.phone.activity()[0]?.decision).toBe('trusted');
    const unsafe = createTestPhone({ trustedVerbs: [verb] }, { confirm: undefined });
    expect((await unsafe.call('POST', path, body)).status).toBe(503);
  });

  it('are added by "don’t ask again" together with a yes', async () => {
    const no = createTestPhone({}, { confirm: async () => ({ allowed: false, dontAskAgain: true }) });
    await no.call('POST', '/send_sms', SMS);
    expect(no.settings.get().trustedVerbs).toEqual([]);
    const yes = createTestPhone({}, { confirm: async () => ({ allowed: true, dontAskAgain: true }) });
    await yes.ok('POST', '/send_sms', SMS);
    await yes.call('POST', '/type', { text: 'pay and buy' });
    expect(yes.settings.get().trustedVerbs).toEqual(['send_sms', 'pay', 'buy']);
  });

  it('override no toggle, blocklist or capability', async () => {
    for (const change of [{ masterEnabled: false }, { capabilities: {} }]) {
      const phone = createTestPhone({ trustedVerbs: ['send_sms'], ...change });
      expect((await phone.call('POST', '/send_sms', SMS)).status).toBe(403);
    }
  });
});
