import { describe, expect, it } from 'vitest';
import { type HeartbeatFiles, judgeHeartbeat } from '../../../lib/operator/heartbeat.ts';

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

  it('tells an age only for fresh and stale ones', () => {
    expect(Object.keys(judge({ pidFile: '1' })).sort()).toEqual(['status', 'supported']);
    expect(Object.keys(judge({})).sort()).toEqual(['age_seconds', 'status', 'supported']);
  });
});
