import { describe, expect, it } from 'vitest';
import { type HeartbeatFiles, judgeHeartbeat, judgePriorExit } from '../../../lib/operator/gateway.ts';

const NOW = 1_790_000_000;
const iso = (ago: number) => new Date((NOW - ago) * 1000).toISOString();
const beat = (fields: object = {}) => JSON.stringify({ pid: 4711, updated_at: iso(10), ...fields });
const judge = (files: Partial<HeartbeatFiles>) =>
  judgeHeartbeat({ heartbeat: beat(), modified: NOW - 10, pidFile: '{"pid":4711}', ...files }, NOW);

describe('gateway heartbeat (07 §3.1)', () => {
  it.each<[string, Partial<HeartbeatFiles>, object]>([
    ['nothing', { heartbeat: null, pidFile: null }, { status: 'missing', supported: false }],
    ['a pid file only', { heartbeat: null }, { status: 'legacy', supported: false }],
    ['a living one', {}, { status: 'fresh', supported: true, age_seconds: 10 }],
    ['a bare pid', { pidFile: '4711\n' }, { status: 'fresh', supported: true, age_seconds: 10 }],
    ['no pid file to compare with', { pidFile: null }, { status: 'fresh', supported: true, age_seconds: 10 }],
    ['an unreadable pid file', { pidFile: '<>' }, { status: 'fresh', supported: true, age_seconds: 10 }],
    ['exactly 90 s', { modified: NOW - 90 }, { status: 'fresh', supported: true, age_seconds: 90 }],
    ['an old file', { modified: NOW - 90.5 }, { status: 'stale', supported: true, age_seconds: 90 }],
    ['an old payload', { heartbeat: beat({ updated_at: iso(500) }) }, { status: 'stale', age_seconds: 500 }],
    ['a payload of the future', { heartbeat: beat({ updated_at: iso(-500) }) }, { status: 'fresh', age_seconds: 10 }],
    ['all in the future', { heartbeat: beat({ updated_at: iso(-5) }), modified: NOW + 5 }, { age_seconds: 0 }],
    [
      'an offset',
      { heartbeat: beat({ updated_at: '2026-09-21T15:13:00.123456+01:00' }) },
      { status: 'fresh', age_seconds: 19 },
    ],
    ['another pid', { pidFile: '4712' }, { status: 'pid_mismatch', supported: true }],
    ['another pid in JSON', { pidFile: '{"pid":1}' }, { status: 'pid_mismatch', supported: true }],
  ])('judges %s', (_, files, expected) => {
    expect(judge(files)).toMatchObject(expected);
  });

  it.each([
    ['equal', 5000, 5000, 'fresh'],
    ['ticks within a second', 5000, 5100, 'fresh'],
    ['ticks apart', 5000, 5101, 'start_mismatch'],
    ['wall times within two seconds', NOW, NOW + 2, 'fresh'],
    ['wall times apart', NOW, NOW + 2.5, 'start_mismatch'],
    ['different units', NOW, 5000, 'fresh'],
    ['a text and a number', iso(0), NOW, 'fresh'],
    ['only one side', undefined, 5000, 'fresh'],
  ])('compares starts: %s', (_, own, noted, status) => {
    const heartbeat = beat({ start_time: own });
    expect(judge({ heartbeat, pidFile: JSON.stringify({ pid: 4711, start_time: noted }) }).status).toBe(status);
  });

  it.each([
    '',
    'null',
    '[]',
    '{"pid":4711',
    beat({ pid: '4711' }),
    beat({ pid: 0 }),
    beat({ pid: 1.5 }),
    beat({ updated_at: 'yesterday' }),
    beat({ updated_at: 17 }),
    beat({ updated_at: '2026-99-99T00:00:00Z' }),
    beat({ start_time: {} }),
  ])('calls %j malformed', (heartbeat) => {
    expect(judge({ heartbeat })).toEqual({ status: 'malformed', supported: true });
  });

  it('reports an age for fresh and stale heartbeats only', () => {
    expect(Object.keys(judge({ pidFile: '1' })).sort()).toEqual(['status', 'supported']);
    expect(Object.keys(judge({})).sort()).toEqual(['age_seconds', 'status', 'supported']);
  });
});

const log = (...records: (object | string)[]) =>
  `${records.map((record) => (typeof record === 'string' ? record : JSON.stringify(record))).join('\n')}\n`;
const tag = (name: string, more: object = {}) => ({ tag: name, pid: 1, ...more });
const START = tag('gateway.start');

describe('prior exit of the gateway (07 §3.1)', () => {
  it.each<[string, string, object]>([
    ['no log', '', { prior_exit: 'unknown' }],
    ['no start', log(tag('atexit.hook')), { prior_exit: 'unknown' }],
    ['a start alone', log(START), { prior_exit: 'unknown' }],
    ['two starts', log(START, START), { prior_exit: 'unknown' }],
    ['atexit', log(START, tag('atexit.hook'), START), { prior_exit: 'clean' }],
    ['return', log(tag('asyncio.run.return'), START), { prior_exit: 'clean' }],
    ['SystemExit', log(tag('asyncio.run.SystemExit'), START), { prior_exit: 'clean' }],
    ['KeyboardInterrupt', log(tag('asyncio.run.KeyboardInterrupt'), START), { prior_exit: 'clean' }],
    ['an exception', log(tag('asyncio.run.Exception'), START), { prior_exit: 'unknown' }],
    ['unclean', log(tag('gateway.previous_unclean_exit'), START), { prior_exit: 'unclean' }],
    [
      'out of memory',
      log(tag('gateway.previous_unclean_exit', { suspected_oom: true }), START),
      { prior_exit: 'unclean', suspected_oom: true },
    ],
    [
      'suspicion of another type',
      log(tag('gateway.previous_unclean_exit', { suspected_oom: 'yes' }), START),
      { prior_exit: 'unclean' },
    ],
    ['suspicion of a clean one', log(tag('atexit.hook', { suspected_oom: true }), START), { prior_exit: 'clean' }],
    [
      'only the last start',
      log(tag('atexit.hook'), START, tag('gateway.previous_unclean_exit'), START),
      { prior_exit: 'unclean' },
    ],
    ['records after the start', log(tag('atexit.hook'), START, tag('signal.handler')), { prior_exit: 'clean' }],
    ['a cut first line', `"atexit.hook"}\n${log(tag('atexit.hook'), START)}`, { prior_exit: 'clean' }],
    [
      'rubbish between',
      log(tag('atexit.hook'), 'Traceback', '{', '{"tag":5}', '[]', 'null', '', START),
      { prior_exit: 'clean' },
    ],
    ['CRLF', log(tag('atexit.hook'), START).replaceAll('\n', '\r\n'), { prior_exit: 'clean' }],
  ])('judges %s', (_, text, expected) => {
    expect(judgePriorExit(text)).toEqual(expected);
  });
});
