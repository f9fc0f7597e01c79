import { describe, expect, it } from 'vitest';
import { PlaybackLedger } from '../../../../lib/voice/agent/playback-ledger.ts';

/** Three deltas of 100 ms of one item, then one of another. */
function spoken(): PlaybackLedger {
  const ledger = new PlaybackLedger();
  for (const audioEventId of [1, 2, 3])
    ledger.sent({ audioEventId, duration: 100, itemId: 'a', contentIndex: 1, responseId: 'r1' }, 0);
  ledger.sent({ audioEventId: 4, duration: 50, itemId: 'b', responseId: 'r2' }, 0);
  return ledger;
}

describe('the history is cut (contract 06 §6.6)', () => {
  it('to what the phone has reported', () => {
    expect(spoken().cut(2, 0, true)).toEqual([
      { itemId: 'a', contentIndex: 1, audioEndMs: 200, responseId: 'r1', share: 2 / 3 },
      { itemId: 'b', contentIndex: 0, audioEndMs: 0, responseId: 'r2', share: 0 },
    ]);
  });

  it('to nothing when the phone has reported nothing', () => {
    expect(spoken().cut(0, 0, true)[0]).toMatchObject({ itemId: 'a', audioEndMs: 0 });
  });

  it('not at all when everything was played', () => {
    expect(spoken().cut(4, 0, true)).toEqual([]);
  });

  it('not in items that were played whole', () => {
    expect(spoken().cut(3, 0, true)).toMatchObject([{ itemId: 'b', contentIndex: 0, audioEndMs: 0 }]);
  });

  it('once', () => {
    const ledger = spoken();
    ledger.cut(1, 0, true);
    expect(ledger.cut(1, 0, true)).toEqual([]);
  });

  it('at the right place of an item that went on after the last turn', () => {
    const ledger = spoken();
    expect(ledger.cut(4, 0, false)).toEqual([]);
    ledger.sent({ audioEventId: 5, duration: 80, itemId: 'b', responseId: 'r2' }, 0);
    ledger.sent({ audioEventId: 6, duration: 80, itemId: 'b', responseId: 'r2' }, 0);
    expect(ledger.cut(5, 0, true)).toMatchObject([{ itemId: 'b', contentIndex: 0, audioEndMs: 130 }]);
  });

  it('not for rendered speech', () => {
    const ledger = new PlaybackLedger();
    ledger.sent({ audioEventId: 1, duration: 100, responseId: 'r1' }, 0);
    expect(ledger.isAllPlayed(0, 0)).toBe(false);
    expect(ledger.cut(0, 0, true)).toEqual([]);
  });
});

describe('a phone that reports nothing', () => {
  it('has played everything when the time for it has passed', () => {
    const ledger = spoken();
    expect(ledger.isAllPlayed(0, 350)).toBe(false);
    expect(ledger.isAllPlayed(0, 2351)).toBe(true);
    expect(ledger.cut(0, 2351, false)).toEqual([]);
  });

  it('plays the rest after it was away', () => {
    const ledger = spoken();
    ledger.resumed(60_000, 0);
    expect(ledger.isAllPlayed(0, 60_300)).toBe(false);
  });
});

it('stays small, however much is said', () => {
  const ledger = new PlaybackLedger();
  for (let n = 1; n <= 50_000; n++)
    ledger.sent({ audioEventId: n, duration: 1, itemId: `i${n % 40}`, responseId: 'r1' }, 0);
  expect(ledger.cut(0, 0, true).length).toBeLessThanOrEqual(16);
});
