import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { createCommands, MAX_IN_FLIGHT, type Outcome } from '../../../lib/dispatch/commands.ts';
import { RelayError } from '../../../lib/errors.ts';
import { createTestClock } from '../../support/clock.ts';

type Kind = Outcome<string>['kind'];

const newOwner = () => {
  const owner = {
    isOpen: true,
    broken: false,
    sent: [] as string[],
    sendFrame(frame: string) {
      if (owner.broken) throw new Error('broken pipe');
      owner.sent.push(frame);
    },
  };
  return owner;
};
type Owner = ReturnType<typeof newOwner>;

const create = (clock = createTestClock()) =>
  createCommands<Owner, string>(clock, () => new RelayError('unavailable', 'too many'));
const command = (id: string, owner: Owner, settled: (outcome: Outcome<string>) => void = () => {}) => ({
  id,
  owner,
  frame: `frame of ${id}`,
  timeout: 30_000,
  settled,
});

type Step =
  | { do: 'open'; owner: number; timeout: number }
  | { do: 'answer'; command: number; owner: number }
  | { do: 'abandon'; command: number }
  | { do: 'failAllOf' | 'break'; owner: number }
  | { do: 'failAll' }
  | { do: 'wait'; ms: number };

const COUNT = 3;
const owner = fc.nat({ max: COUNT - 1 });
const which = fc.nat({ max: 30 });
const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({ do: fc.constant('open' as const), owner, timeout: fc.integer({ min: 1, max: 60_000 }) }),
  },
  { weight: 6, arbitrary: fc.record({ do: fc.constant('answer' as const), command: which, owner }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('abandon' as const), command: which }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constantFrom('failAllOf' as const, 'break' as const), owner }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('failAll' as const) }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('wait' as const), ms: fc.nat({ max: 20_000 }) }) },
);

describe('the life of a command (contract 03 §1.4, 07 §2.3)', () => {
  it('every command settles exactly once, as a simple model says', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 80 }), (steps) => {
        const clock = createTestClock();
        const commands = create(clock);
        const owners = Array.from({ length: COUNT }, newOwner);
        const ownerOf = (at: number) => owners[at] as Owner;
        const outcomes: Kind[][] = [];
        const callers: AbortController[] = [];
        const model: { owner: number; due: number; ended?: Kind }[] = [];
        const end = (kind: Kind, which: (at: number) => boolean) => {
          for (const [at, command] of model.entries()) if (!command.ended && which(at)) command.ended = kind;
        };
        for (const next of steps) {
          switch (next.do) {
            case 'open': {
              const { timeout } = next;
              const at = model.push({ owner: next.owner, due: clock.monotonic() + timeout }) - 1;
              const caller = new AbortController();
              callers.push(caller);
              const settled = ({ kind }: Outcome<string>) => void outcomes[at]?.push(kind);
              outcomes.push([]);
              commands.open({ ...command(String(at), ownerOf(next.owner), settled), timeout, signal: caller.signal });
              if (ownerOf(next.owner).broken) end('unsent', (other) => other === at);
              else expect(ownerOf(next.owner).sent.at(-1)).toBe(`frame of ${at}`);
              break;
            }
            case 'answer':
              expect(commands.answer(String(next.command), ownerOf(next.owner), () => 'answer')).toBe(
                model[next.command]?.owner === next.owner && !model[next.command]?.ended,
              );
              end('answered', (at) => at === next.command && model[at]?.owner === next.owner);
              break;
            case 'abandon':
              callers[next.command]?.abort();
              end('abandoned', (at) => at === next.command);
              break;
            case 'failAllOf':
              commands.failAllOf(ownerOf(next.owner), 'gone');
              end('failed', (at) => model[at]?.owner === next.owner);
              break;
            case 'break':
              ownerOf(next.owner).broken = !ownerOf(next.owner).broken;
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
    const commands = create();
    const one = newOwner();
    for (let at = 0; at < MAX_IN_FLIGHT; at++) commands.open(command(`a${at}`, one));
    expect(() => commands.open(command('one more', one))).toThrow('too many');
    expect(one.sent).toHaveLength(MAX_IN_FLIGHT);
    commands.open(command('of another', newOwner()));
    commands.answer('a5', one, () => 'answer');
    commands.open(command('now', one));
    expect(commands.count()).toBe(MAX_IN_FLIGHT + 1);
  });

  it('a command that is settled may open another at once', () => {
    const commands = create();
    const one = newOwner();
    const seen: string[] = [];
    commands.open(command('first', one, () => commands.open(command('second', one, ({ kind }) => seen.push(kind)))));
    commands.failAllOf(one, 'gone');
    expect(commands.count()).toBe(1);
    commands.answer('second', one, () => 'answer');
    expect(seen).toEqual(['answered']);
  });

  it('nothing is sent to a socket that is gone, nor for a caller that is', () => {
    const commands = create();
    const seen: Outcome<string>[] = [];
    const closed = Object.assign(newOwner(), { isOpen: false });
    const open = newOwner();
    commands.open(command('to nobody', closed, (outcome) => seen.push(outcome)));
    commands.open({ ...command('for nobody', open, (outcome) => seen.push(outcome)), signal: AbortSignal.abort() });
    expect(seen).toEqual([{ kind: 'unsent', error: 'socket is not open' }, { kind: 'abandoned' }]);
    expect([...closed.sent, ...open.sent]).toEqual([]);
    expect(commands.count()).toBe(0);
  });
});
