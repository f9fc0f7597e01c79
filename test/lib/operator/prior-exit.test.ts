import { describe, expect, it } from 'vitest';
import { judgePriorExit } from '../../../lib/operator/prior-exit.ts';

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
