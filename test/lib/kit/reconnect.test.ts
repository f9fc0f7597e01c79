import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  type Attempts,
  backoff,
  type Ending,
  endingOf,
  MAX_ATTENDED,
  MAX_INTERRUPTIONS,
  NO_ATTEMPTS,
  nextAttempt,
  type Pace,
  QUICK_FOR,
  QUICK_WAIT,
  STEADY_AFTER,
} from '../../../lib/kit/reconnect.ts';
import { createTestClock } from '../../support/clock.ts';

const PACE: Pace = { max: 30_000, jitter: (wait) => -wait / 5 };
const unit = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true });
const ending = fc.constantFrom<Ending>('restarting', 'refused', 'broken', 'other');

/** A server that is up or down, and a client that keeps connecting to it: when the client was online. */
function simulate(
  isUp: (at: number) => boolean,
  { until, lost, random, isAttended }: { until: number; lost: Ending; random(): number; isAttended?: boolean },
) {
  const clock = createTestClock();
  const start = clock.monotonic();
  const at = () => clock.monotonic() - start;
  const tries: number[] = [];
  const online: number[] = [];
  let attempts: Attempts = NO_ATTEMPTS;
  let since: number | null = null;
  const plan = (ending: Ending, lasted: number | null) => {
    const facts = { now: clock.monotonic(), random: random(), isAttended };
    const next = nextAttempt(attempts, { ending, lasted }, facts, PACE);
    attempts = next.attempts;
    clock.after(next.wait, dial);
  };
  function dial() {
    tries.push(at());
    if (!isUp(at())) return plan('refused', null);
    online.push(at());
    since = at();
    watch();
  }
  function watch() {
    if (isUp(at())) return void clock.after(10, watch);
    const lasted = at() - (since ?? 0);
    since = null;
    plan(lost, lasted);
  }
  dial();
  clock.advance(until);
  return { tries, online };
}

describe('the reconnect policy (issue 23 §2.4)', () => {
  it.each<Ending>(['restarting', 'broken'])(
    'is back within two seconds of each of ten restarts in a row (%s)',
    (lost) => {
      fc.assert(
        fc.property(
          fc.array(fc.nat(12_000), { minLength: 10, maxLength: 10 }),
          fc.nat(20_000),
          fc.infiniteStream(unit),
          (away, up, random) => {
            // Up for `uptime`, then away, ten times.
            const uptime = 1_500 + up;
            const downs: [number, number][] = [];
            let at = uptime;
            for (const length of away) {
              downs.push([at, at + 50 + length]);
              at += 50 + length + 2_100 + uptime;
            }
            const isUp = (time: number) => !downs.some(([from, to]) => time >= from && time < to);
            const { online } = simulate(isUp, { until: at, lost, random: () => random.next().value as number });
            for (const [, end] of downs) {
              const back = online.find((time) => time >= end) ?? Number.POSITIVE_INFINITY;
              expect(back - end).toBeLessThanOrEqual(QUICK_WAIT.max + 20);
            }
          },
        ),
        { numRuns: 50 },
      );
    },
  );

  it('asks a host that stays away often for 15 s, then after 1, 2, 4 ... 30 s', () => {
    const isUp = (at: number) => at < 60_000;
    const { tries } = simulate(isUp, { until: 300_000, lost: 'restarting', random: () => 0 });
    const after = tries.slice(1).map((at) => at - 60_000);
    const quick = after.filter((at) => at < QUICK_FOR);
    expect(quick.length).toBe(29);
    const waits = after.slice(quick.length).map((at, index, all) => at - (all[index - 1] ?? Number.NaN));
    expect(waits.slice(1, 7)).toEqual([1_000, 2_000, 4_000, 8_000, 16_000, 30_000]);
  });

  it('issue 25 §3.7: is back within two seconds of the return while somebody waits, and not for ever so quick', () => {
    const down = { from: 60_000, to: 400_000 };
    const isUp = (at: number) => at < down.from || at >= down.to;
    const run = (isAttended: boolean) =>
      simulate(isUp, { until: 450_000, lost: 'broken', random: () => 0.999, isAttended });
    const back = ({ online }: { online: number[] }) => (online.find((at) => at >= down.to) ?? 0) - down.to;
    expect(back(run(true))).toBeLessThanOrEqual(QUICK_WAIT.max);
    expect(back(run(false))).toBeGreaterThan(QUICK_WAIT.max);
    const { tries } = simulate((at) => at < 60_000, {
      until: 3_600_000,
      lost: 'broken',
      random: () => 0.999,
      isAttended: true,
    });
    const waits = tries.map((at, index) => at - (tries[index - 1] ?? 0));
    expect(Math.max(...waits.slice(3, MAX_ATTENDED))).toBeLessThanOrEqual(QUICK_WAIT.max);
    expect(waits.at(-1)).toBeGreaterThan(20_000);
  });

  it('never waits outside its bounds, and quickly only for a restart or a refusal within 15 s of a connection', () => {
    const outcome = fc.record({ ending, lasted: fc.option(fc.nat(60_000)) });
    fc.assert(
      fc.property(fc.array(fc.tuple(outcome, fc.nat(40_000), unit), { maxLength: 60 }), (steps) => {
        let attempts = NO_ATTEMPTS;
        let now = 0;
        let ended = Number.NEGATIVE_INFINITY;
        let short = 0;
        for (const [{ ending, lasted }, passed, random] of steps) {
          now += passed + (lasted ?? 0);
          if (lasted !== null) {
            ended = now;
            short = lasted >= STEADY_AFTER ? 0 : short + 1;
          }
          const before = attempts;
          const retry = nextAttempt(before, { ending, lasted }, { now, random }, PACE);
          attempts = retry.attempts;
          const mayBeQuick = (ending === 'restarting' || ending === 'refused') && now - ended < QUICK_FOR;
          if (mayBeQuick && short <= MAX_INTERRUPTIONS) {
            expect(retry.wait).toBeGreaterThanOrEqual(QUICK_WAIT.min);
            expect(retry.wait).toBeLessThanOrEqual(QUICK_WAIT.max);
          } else {
            expect(retry.wait).toBe(backoff(attempts.failures - 1, random, PACE));
            expect(retry.wait).toBeGreaterThanOrEqual(800);
            expect(retry.wait).toBeLessThanOrEqual(30_000);
          }
        }
      }),
    );
  });

  it('slows down for a host that lets clients in and goes away again at once', () => {
    const isUp = (at: number) => at % 20 < 10;
    for (const lost of ['restarting', 'broken', 'other'] as const) {
      const { tries } = simulate(isUp, { until: 3_600_000, lost, random: () => 0 });
      expect(tries.length).toBeLessThan(200);
    }
  });

  it('returns sooner after a useful connection has broken, where a client wants that, but not time and again', () => {
    const pace = { ...PACE, afterBreak: { min: 200, max: 600 } };
    const lost = (lasted: number, attempts = NO_ATTEMPTS, ending: Ending = 'broken') =>
      nextAttempt(attempts, { ending, lasted }, { now: 0, random: 0.5 }, pace);
    expect([lost(1_000).wait, lost(60_000).wait]).toEqual([400, 400]);
    expect([lost(999).wait, lost(60_000, NO_ATTEMPTS, 'other').wait]).toEqual([900, 900]);
    let attempts = NO_ATTEMPTS;
    const waits = Array.from({ length: MAX_INTERRUPTIONS + 3 }, () => {
      const retry = lost(5_000, attempts);
      attempts = retry.attempts;
      return retry.wait;
    });
    expect(waits.slice(MAX_INTERRUPTIONS)).toEqual([900, 1800, 3600]);
  });

  it('spreads a thousand clients of one host over a second and a half', () => {
    const waits = Array.from({ length: 1000 }, (_, index) =>
      nextAttempt(NO_ATTEMPTS, { ending: 'restarting', lasted: 60_000 }, { now: 0, random: index / 1000 }, PACE),
    ).map(({ wait }) => wait);
    const perTenth = new Map<number, number>();
    for (const wait of waits) perTenth.set(Math.floor(wait / 100), (perTenth.get(Math.floor(wait / 100)) ?? 0) + 1);
    expect(Math.max(...perTenth.values())).toBeLessThan(80);
    expect([Math.min(...waits), Math.max(...waits)]).toEqual([500, 1999]);
  });

  it('knows a restart, a refusal and a broken connection', () => {
    const cases: [Parameters<typeof endingOf>[0], Ending][] = [
      [{ code: 1001 }, 'restarting'],
      [{ code: 1012 }, 'restarting'],
      [{ code: 1006 }, 'broken'],
      [{ code: 1006, isRefused: true }, 'refused'],
      [{ code: 1006, status: 502 }, 'refused'],
      [{ code: 1006, status: 503 }, 'refused'],
      [{ code: 1006, status: 404 }, 'other'],
      [{ code: 1013 }, 'other'],
      [{ code: 4401 }, 'other'],
    ];
    for (const [end, ending] of cases) expect(endingOf(end), JSON.stringify(end)).toBe(ending);
  });
});
