import { expect, it } from 'vitest';
import { createControlSessions, type Requester } from '../../../lib/desktop/control.ts';
import type { Device } from '../../../lib/desktop/registry.ts';
import type { Link } from '../../../lib/dispatch/link.ts';
import type { Payload } from '../../../lib/socket/envelope.ts';
import type { DesktopControlRecord } from '../../../storage/schema.ts';
import { createTestClock } from '../../support/clock.ts';

const targetOn = (id: string) => ({ id: `pc-${id}`, link: { id } as Link }) as Device;
const requester = (more: Partial<Requester> = {}): Requester => ({ family: 'f', deviceId: 'd', runId: 'r', ...more });

const setup = () => {
  const clock = createTestClock();
  const ends: Payload[] = [];
  const kept = new Map<Link, DesktopControlRecord[]>();
  const control = createControlSessions({
    clock,
    ended: (_link, payload) => ends.push(payload),
    changed: (link) => kept.set(link, control.records(link)),
  });
  return { clock, control, ends, kept };
};

it('a control session has one timer, and none once it is over', () => {
  const { clock, control, ends } = setup();
  const [one, two] = [targetOn('one'), targetOn('two')];
  for (let at = 0; at < 5; at++) control.use(one, requester({ runId: `r${at % 2}` }), 'id');
  expect(clock.pending).toBe(1);
  expect(ends.map(({ reason }) => reason)).toEqual(Array(4).fill('requester run changed'));
  control.use(two, requester(), 'id');
  control.use(two, requester({ profile: 'p' }), 'id');
  control.drop(one.link);
  expect(clock.pending).toBe(2);
  clock.advance(900_000);
  expect(clock.pending).toBe(0);
  expect(ends).toHaveLength(6);
  control.use(one, requester(), 'id');
  control.stop();
  expect(clock.pending).toBe(0);
  expect(ends, 'neither a drop nor a stop tells anybody').toHaveLength(6);
});

it('what is kept brings a session back as it was, and its time runs on', () => {
  const first = setup();
  const target = targetOn('one');
  const { id } = first.control.use(target, requester({ chatSession: 'c' }), 'id');
  first.clock.advance(600_000);
  const records = first.kept.get(target.link) as DesktopControlRecord[];

  const second = setup();
  second.clock.advance(600_000);
  second.control.restore(target.link, JSON.parse(JSON.stringify(records)));
  second.clock.advance(299_999);
  expect(second.ends).toEqual([]);
  second.clock.advance(1);
  expect(second.ends).toMatchObject([{ id, target_device_id: 'pc-one', reason: 'control session idle timeout' }]);
  expect(second.kept.get(target.link)).toEqual([]);

  second.control.restore(target.link, JSON.parse(JSON.stringify(records)));
  second.clock.advance(0);
  expect(second.ends, 'one whose time ran out meanwhile').toHaveLength(2);

  const third = setup();
  third.control.restore(target.link, JSON.parse(JSON.stringify(records)));
  expect(third.control.use(target, requester({ chatSession: 'c' }), 'id').id).toBe(id);
});
