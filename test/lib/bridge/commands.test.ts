import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Answer } from '../../../lib/bridge/answer.ts';
import { COMMAND_TIMEOUT, createCommands, MAX_IN_FLIGHT, type Outcome } from '../../../lib/bridge/commands.ts';
import { createTestClock } from '../../support/clock.ts';

const ANSWER: Answer = { status: 200, result: 1, resultText: '', blocked: false };
const OWNERS = ['a', 'b', 'c'].map((name) => ({ name }));

type Step =
  | { do: 'open'; owner: number }
  | { do: 'answer'; command: number; owner: number }
  | { do: 'fail' | 'abandon'; command: number }
  | { do: 'failAllOf'; owner: number }
  | { do: 'failAll' }
  | { do: 'wait'; ms: number };

const owner = fc.nat({ max: OWNERS.length - 1 });
const command = fc.nat({ max: 30 });
const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 6, arbitrary: fc.record({ do: fc.constant('open' as const), owner }) },
  { weight: 6, arbitrary: fc.record({ do: fc.constant('answer' as const), command, owner }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constantFrom('fail' as const, 'abandon' as const), command }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('failAllOf' as const), owner }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('failAll' as const) }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('wait' as const), ms: fc.nat({ max: 20_000 }) }) },
);

describe('the life of a command (contract 03 §1.4)', () => {
  it('every command settles exactly once, as a simple model says', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 80 }), (steps) => {
        const clock = createTestClock();
        const commands = createCommands<object>(clock);
        const outcomes: Outcome['kind'][][] = [];
        const model: { owner: number; due: number; ended?: Outcome['kind'] }[] = [];
        const end = (kind: Outcome['kind'], which: (at: number) => boolean) => {
          for (const [at, command] of model.entries()) if (!command.ended && which(at)) command.ended = kind;
        };
        for (const next of steps) {
          switch (next.do) {
            case 'open': {
              const at = model.push({ owner: next.owner, due: clock.monotonic() + COMMAND_TIMEOUT }) - 1;
              outcomes.push([]);
              commands.open(String(at), OWNERS[next.owner] as object, ({ kind }) => void outcomes[at]?.push(kind));
              break;
            }
            case 'answer':
              expect(commands.answer(String(next.command), OWNERS[next.owner] as object, () => ANSWER)).toBe(
                model[next.command]?.owner === next.owner && !model[next.command]?.ended,
              );
              end('answered', (at) => at === next.command && model[at]?.owner === next.owner);
              break;
            case 'fail':
            case 'abandon':
              if (next.do === 'fail') commands.fail(String(next.command), 'why');
              else commands.abandon(String(next.command));
              end(next.do === 'fail' ? 'failed' : 'abandoned', (at) => at === next.command);
              break;
            case 'failAllOf':
              commands.failAllOf(OWNERS[next.owner] as object, 'gone');
              end('failed', (at) => model[at]?.owner === next.owner);
              break;
            case 'failAll':
              commands.failAll('stop');
              end('failed', () => true);
              break;
            case 'wait':
              clock.advance(next.ms);
              end('timeout', (at) => (model[at]?.due ?? 0) <= clock.monotonic());
          }
          const open = model.filter(({ ended }) => !ended).length;
          expect(commands.count()).toBe(open);
          expect(clock.pending, 'timers').toBe(open);
          expect(outcomes).toEqual(model.map(({ ended }) => (ended ? [ended] : [])));
        }
      }),
      { numRuns: 200 },
    );
  });

  it('64 on one socket, and no more', () => {
    const commands = createCommands<object>(createTestClock());
    const [one, two] = OWNERS as [object, object];
    for (let at = 0; at < MAX_IN_FLIGHT; at++) commands.open(`a${at}`, one, () => {});
    expect(() => commands.open('one more', one, () => {})).toThrow(expect.objectContaining({ retryAfter: 1 }));
    commands.open('of another', two, () => {});
    commands.answer('a5', one, () => ANSWER);
    commands.open('now', one, () => {});
    expect(commands.count()).toBe(MAX_IN_FLIGHT + 1);
  });

  it('a command that is settled may open another at once', () => {
    const commands = createCommands<object>(createTestClock());
    const [one] = OWNERS as [object];
    const seen: string[] = [];
    commands.open('first', one, () => commands.open('second', one, ({ kind }) => seen.push(kind)));
    commands.failAllOf(one, 'gone');
    expect(commands.count()).toBe(1);
    commands.answer('second', one, () => ANSWER);
    expect(seen).toEqual(['answered']);
  });
});
