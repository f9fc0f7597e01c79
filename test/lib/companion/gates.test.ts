import { describe, expect, it } from 'vitest';
import { ROUTES } from '../../../lib/companion/commands/index.ts';
import type { SafetySettings } from '../../../lib/companion/safety-settings.ts';
import { BANK, createTestPhone } from './support.ts';

type Case = ReturnType<typeof createTestPhone>;

/** For each gate, how to make it refuse and what its refusal looks like (contract 03 §8.1). */
const FAULTS: {
  gate: string;
  settings?: Partial<SafetySettings>;
  arrange?: (phone: Case) => void;
  expect: Record<string, unknown>;
}[] = [
  {
    gate: '2 flavour',
    settings: { flavor: 'store' },
    expect: { status: 403, error_code: 'device_control_sideload_only', flavor: 'store' },
  },
  {
    gate: '3 capability',
    settings: { capabilities: {} },
    expect: { status: 403, error_code: 'bridge_capability_denied', capability: 'screen_control' },
  },
  {
    gate: '4 accessibility',
    arrange: ({ system }) => {
      system.accessibility = false;
    },
    expect: { status: 503, error_code: 'service_unavailable' },
  },
  {
    gate: '5 master toggle',
    settings: { masterEnabled: false },
    expect: { status: 403, error_code: 'bridge_disabled' },
  },
  {
    gate: '6 blocklist',
    arrange: ({ device }) => void device.launch(BANK),
    expect: { status: 403, error: `blocked package ${BANK}` },
  },
  {
    gate: '7 destructive text',
    arrange: ({ person }) => {
      person.answer = false;
    },
    expect: { status: 403, error_code: 'user_denied' },
  },
  {
    gate: '9 keyguard',
    settings: { unattended: true },
    arrange: ({ system }) => {
      Object.assign(system, { credential: true, locked: true, screenOn: false });
    },
    expect: { status: 423, error_code: 'keyguard_blocked', final: true },
  },
  { gate: '10 handler', expect: { status: 400, error: 'exact must be true or false' } },
];

/** Arguments that need a confirmation and then fail in the handler. */
const BODY = { text: 'Buy', exact: 'perhaps' };

async function fail(...faults: (typeof FAULTS)[number][]) {
  const phone = createTestPhone(Object.assign({}, ...faults.map(({ settings }) => settings)));
  for (const { arrange } of faults) arrange?.(phone);
  const answer = await phone.call('POST', '/tap_text', BODY);
  return { answer: { ...answer.result, status: answer.status }, phone };
}

describe('order of the gates (contract 03 §8.1)', () => {
  for (const [index, fault] of FAULTS.entries()) {
    it(`${fault.gate} refuses`, async () => {
      expect((await fail(fault)).answer).toMatchObject(fault.expect);
    });

    for (const later of FAULTS.slice(index + 1)) {
      // The keyguard itself is in the foreground, so no blocklisted app is.
      if (fault.gate.startsWith('6') && later.gate.startsWith('9')) continue;
      it(`${fault.gate} comes before ${later.gate}`, async () => {
        expect((await fail(fault, later)).answer).toMatchObject(fault.expect);
      });
    }
  }

  it('1 lookup comes before all other gates', async () => {
    const phone = createTestPhone({ flavor: 'store', masterEnabled: false, capabilities: {} });
    const answer = await phone.call('POST', '/no_such_thing');
    expect(answer).toMatchObject({ status: 403, blocked: true, result: { error_code: 'unknown_bridge_command' } });
  });

  it('6 blocklist comes before 9 keyguard: the screen is not woken', async () => {
    const phone = createTestPhone({ unattended: true, blocklist: ['com.android.systemui'] });
    Object.assign(phone.system, { locked: true, screenOn: false });
    const answer = await phone.call('POST', '/press_key', { key: 'home' });
    expect(answer.result.error).toBe('blocked package com.android.systemui');
    expect(phone.system.screenOn).toBe(false);
  });

  it('no question is asked when an earlier gate refuses', async () => {
    const phone = createTestPhone({ masterEnabled: false });
    await phone.call('POST', '/tap_text', { text: 'Buy' });
    expect(phone.person.asked).toEqual([]);
  });
});

describe('gate 1: a closed table', () => {
  it('has 34 paths and 35 pairs of method and path', () => {
    expect(ROUTES.length).toBe(35);
    expect(new Set(ROUTES.map(({ path }) => path)).size).toBe(34);
  });

  it.each([
    ['POST', '/ping'],
    ['GET', '/tap'],
    ['GET', '/__proto__'],
    ['GET', '/screen/'],
    ['GET', ''],
    ['HEAD', '/ping'],
  ])('%s %s is unknown', async (method, path) => {
    expect(await createTestPhone().call(method, path)).toMatchObject({
      status: 403,
      result: { error_code: 'unknown_bridge_command', code: 'unknown_bridge_command' },
    });
  });

  it('accepts the method in any case', async () => {
    expect((await createTestPhone().call('get', '/ping')).status).toBe(200);
  });

  it('/clipboard with another method answers 405', async () => {
    const answer = await createTestPhone().call('PUT', '/clipboard');
    expect(answer).toEqual({ status: 405, result: { error: 'method not allowed' }, error: 'method not allowed' });
  });
});

describe('gate 2: the store build', () => {
  it.each(ROUTES.map(({ method, path }) => [method, path] as const))('%s %s', async (method, path) => {
    const answer = await createTestPhone({ flavor: 'store' }).call(method, path);
    if (path === '/ping' || path === '/setup') expect(answer.status).toBe(200);
    else expect(answer.result.error_code).toBe('device_control_sideload_only');
  });
});

describe('gate 3: capabilities (contract 03 §8.2)', () => {
  const guarded = ROUTES.filter(({ capability }) => capability !== null);

  it.each(guarded.map(({ method, path, capability }) => [method, path, capability] as const))(
    '%s %s needs %s and nothing else',
    async (method, path, capability) => {
      const all = createTestPhone().settings.get().capabilities;
      const without = { ...all };
      delete without[capability as string];
      const refused = await createTestPhone({ capabilities: without }).call(method, path);
      expect(refused).toMatchObject({
        status: 403,
        blocked: true,
        result: { error_code: 'bridge_capability_denied', capability },
      });
      expect(refused.result.required_action).toBeTypeOf('string');
      const only = createTestPhone({ capabilities: { [capability as string]: null } });
      expect((await only.call(method, path)).result.error_code ?? '').not.toMatch(/^bridge_capability/);
    },
  );

  it('exempts /ping, /setup and /wait', async () => {
    const phone = createTestPhone({ policy: 'unbound', capabilities: {} });
    expect(ROUTES.filter(({ capability }) => capability === null).map(({ path }) => path)).toEqual([
      '/ping',
      '/setup',
      '/wait',
    ]);
    await phone.ok('GET', '/ping');
    await phone.ok('POST', '/setup');
    const waiting = phone.ok('POST', '/wait');
    await phone.clock.advanceAsync(0);
    await waiting;
  });

  it.each([
    ['unbound', 'bridge_policy_unbound'],
    ['unavailable', 'bridge_policy_unavailable'],
    ['invalid', 'bridge_policy_invalid'],
    ['from the future', 'bridge_policy_invalid'],
  ])('a policy that is %s denies everything', async (policy, code) => {
    const answer = await createTestPhone({ policy: policy as 'bound' }).call('GET', '/screen');
    expect(answer).toMatchObject({ status: 403, result: { error_code: code, capability: 'screen_inspection' } });
  });

  it.each([[{ device_info: 5 }], [{ screen_control: Number.NaN }], [{ screen_control: 'soon' }], [null]])(
    'malformed grants deny everything: %j',
    async (capabilities) => {
      const answer = await createTestPhone({ capabilities: capabilities as never }).call('GET', '/clipboard');
      expect(answer.result.error_code).toBe('bridge_policy_invalid');
    },
  );

  it('a lease is live while its end lies in the future', async () => {
    const phone = createTestPhone({ masterEnabled: false });
    const until = phone.clock.now() + 1000;
    await phone.settings.update({ capabilities: { screen_control: until } });
    phone.clock.advance(999);
    expect((await phone.call('POST', '/tap')).result.error_code).toBe('bridge_disabled');
    phone.clock.advance(1);
    expect((await phone.call('POST', '/tap')).result).toMatchObject({
      error_code: 'bridge_capability_expired',
      capability: 'screen_control',
    });
  });
});

describe('gates 5 and 6: bypasses', () => {
  it.each(ROUTES.map(({ method, path }) => [method, path] as const))('master off: %s %s', async (method, path) => {
    const { result, status } = await createTestPhone({ masterEnabled: false }).call(method, path);
    if (['/ping', '/setup', '/current_app', '/return_to_hermes'].includes(path)) expect(status).toBe(200);
    else expect(result).toMatchObject({ error_code: 'bridge_disabled', required_action: 'enable_bridge' });
  });

  it.each(ROUTES.map(({ method, path }) => [method, path] as const))('bank in front: %s %s', async (method, path) => {
    const phone = createTestPhone();
    await phone.device.launch(BANK);
    const answer = await phone.call(method, path);
    if (['/ping', '/setup', '/return_to_hermes'].includes(path)) expect(answer.status).toBe(200);
    else expect(answer).toMatchObject({ status: 403, blocked: true, result: { error: `blocked package ${BANK}` } });
  });

  it('an emptied blocklist blocks nothing, and neither is a blank foreground blocked', async () => {
    const phone = createTestPhone({ blocklist: [] });
    await phone.device.launch(BANK);
    expect((await phone.ok('GET', '/current_app')).package).toBe(BANK);
    const { device } = createTestPhone();
    const info = { ...device.info(), foreground: ' ' };
    const blank = createTestPhone({ blocklist: [' ', ''] }, { device: { ...device, info: () => info } });
    expect((await blank.call('GET', '/screen')).status).toBe(200);
  });
});

describe('gate 9: keyguard', () => {
  const READ_ONLY = `/ping /current_app /screen /screen_hash /diff_screen /find_nodes /describe_node /events
    /events/stream /get_apps /apps /setup /return_to_hermes /screenshot /location /search_contacts /wait`.split(/\s+/);

  it('has the read-only routes of the contract', () => {
    expect(
      ROUTES.filter(({ readOnly }) => readOnly)
        .map(({ path }) => path)
        .sort(),
    ).toEqual([...READ_ONLY].sort());
  });

  it('wakes a screen without a PIN', async () => {
    const phone = createTestPhone({ unattended: true });
    await phone.device.global('lock_screen');
    await phone.ok('POST', '/press_key', { key: 'home' });
    expect(phone.system).toMatchObject({ screenOn: true, locked: false });
  });

  it('does not wake the screen without unattended access', async () => {
    const phone = createTestPhone();
    await phone.device.global('lock_screen');
    await phone.call('POST', '/press_key', { key: 'home' });
    expect(phone.system.screenOn).toBe(false);
  });

  it('checks the app behind the keyguard against gates 6 and 7', async () => {
    const phone = createTestPhone({ unattended: true }, { answer: false });
    await phone.device.launch(BANK);
    await phone.device.global('lock_screen');
    const answer = await phone.call('POST', '/tap', { x: 10, y: 10 });
    expect(answer.result.error).toBe(`blocked package ${BANK}`);
  });
});
