import { expect, it } from 'vitest';
import { type DesktopClient, loseGrant, reconnect, silent, startDesktop } from '../support/desktop.ts';
import { bearer, describeMatrix, pair, type Target } from '../support/relay.ts';
import { call, health, refusalOf } from './desktop-support.ts';

const named = (target: Target, device_id: string, device_name: string, status: Record<string, unknown> = {}) =>
  startDesktop(target, { device: { device_id, device_name }, status });

const toolsOf = (target: Target, caller: DesktopClient): Promise<string[][]> =>
  health(target, caller).then(({ clients }) =>
    clients.map(({ advertised_tools }: { advertised_tools: string[] }) => advertised_tools),
  );

describeMatrix('choosing the desktop (contract 07 §2.2, 2.3)', (start) => {
  it('no desktop: 502, also with a selector; hints and phones make none', async () => {
    const target = await start();
    const quiet = await startDesktop(target, { status: null });
    quiet.client.send('desktop', 'active_editor', { version: 1, ts: 1, source: 'none' });
    quiet.client.send('desktop', 'desktop.status', 'no object');
    await quiet.settled();
    expect(await refusalOf(call(target, quiet, 'desktop_terminal'))).toEqual([502, 'no_desktop']);
    expect(await refusalOf(call(target, quiet, 'desktop_terminal', { device: 'PC' }))).toEqual([502, 'no_desktop']);
    expect(quiet.commands).toEqual([]);
    quiet.client.send('desktop', 'status', {});
    await quiet.settled();
    expect((await call(target, quiet, 'desktop_terminal')).status).toBe(200);
  });

  it('selectors: id, name and host; case and separators do not count', async () => {
    const target = await start();
    const axiom = await named(target, 'id-1', 'AXIOM-DESKTOP', { host: 'axiom.local' });
    const büro = await named(target, 'id-2', 'Büro', { host: 'office' });
    for (const [args, who] of [
      [{ device: 'axiom desktop' }, axiom],
      [{ device: ' Axiom-Desktop ' }, axiom],
      [{ device_id: 'ID 1' }, axiom],
      [{ device: 'AXIOM.LOCAL' }, axiom],
      [{ device: '', device_id: 'id-1' }, axiom],
      [{ device: 5, device_id: 'id-1' }, axiom],
      [{ device: 'office', device_id: 'id-1' }, büro],
      [{ device: 'BÜRO' }, büro],
      [{ device: 'bü-ro' }, büro],
    ] as const) {
      const response = await call(target, axiom, 'desktop_terminal', { ...args, x: 1 });
      expect(await response.json(), JSON.stringify(args)).toMatchObject({
        ok: true,
        result: { args: { x: 1 } },
        target: { device_id: who.id },
      });
    }
    const byQuery = await target.fetch('/desktop/desktop_terminal?device=office&x=1', { headers: axiom.headers });
    expect(await byQuery.json()).toMatchObject({ result: { args: { x: '1' } }, target: { device_name: 'Büro' } });
    const posted = await target.fetch('/desktop/desktop_terminal?device=office', {
      method: 'POST',
      headers: axiom.headers,
    });
    expect((await posted.json()).target.device_name).toBe('Büro');
  });

  it('never a guess: several, unknown and ambiguous are 502 and say what there is', async () => {
    const target = await start();
    const one = await named(target, 'id-1', 'Same name');
    const two = await named(target, 'id-2', 'Same name');
    const text = async (args: unknown) => (await (await call(target, one, 'desktop_terminal', args)).json()).error;
    for (const [args, code] of [
      [{}, 'ambiguous_device'],
      [{ device: ' ' }, 'ambiguous_device'],
      [{ device: ['id-1'] }, 'ambiguous_device'],
      [{ device: 'same-name' }, 'ambiguous_device'],
      [{ device: 'nobody' }, 'unknown_device'],
      [{ device: '???' }, 'unknown_device'],
    ] as const) {
      expect(await refusalOf(call(target, one, 'desktop_terminal', args))).toEqual([502, code]);
    }
    expect(await text({})).toContain('device or device_id');
    expect(await text({})).toContain('Same name (id-2), Same name (id-1)');
    expect(await text({ device: 'nobody' })).toContain('Same name (id-1)');
    expect([...one.commands, ...two.commands]).toEqual([]);
    two.client.close();
    await expect.poll(async () => (await health(target, one)).clients.length).toBe(1);
    expect((await call(target, one, 'desktop_terminal')).status).toBe(200);
  });

  it('a tool that is not offered is not sent', async () => {
    const target = await start();
    const desktop = await startDesktop(target, { status: { advertised_tools: ['desktop_zip'] } });
    expect(await refusalOf(call(target, desktop, 'desktop_terminal'))).toEqual([502, 'tool_not_advertised']);
    expect(await refusalOf(call(target, desktop, 'desktop_computer_status'))).toEqual([502, 'tool_not_advertised']);
    expect((await call(target, desktop, 'desktop_zip')).status).toBe(200);
    await desktop.report({ advertised_tools: [] });
    expect((await call(target, desktop, 'desktop_terminal')).status).toBe(200);
    expect(await refusalOf(call(target, desktop, 'desktop_computer_status'))).toEqual([502, 'tool_not_advertised']);
    await desktop.report({ advertised_tools: ['desktop_computer_status'] });
    expect((await call(target, desktop, 'desktop_computer_status')).status).toBe(200);
    await desktop.report({ advertised_tools: 'all' });
    expect((await call(target, desktop, 'desktop_computer_status')).status, 'kept').toBe(200);
  });

  it('two sockets of one desktop: the one that offers the tool, of those the younger', async () => {
    const target = await start();
    const daemon = await startDesktop(target, { status: { advertised_tools: ['desktop_zip', 'desktop_terminal'] } });
    const shell = await reconnect(target, daemon, { status: { advertised_tools: ['desktop_terminal'] } });
    const bare = await reconnect(target, daemon, { status: { advertised_tools: [] } });
    await daemon.report({ advertised_tools: ['desktop_zip', 'desktop_terminal'] });
    expect((await toolsOf(target, daemon)).sort()).toEqual([
      [],
      ['desktop_terminal'],
      ['desktop_terminal', 'desktop_zip'],
    ]);
    expect((await call(target, daemon, 'desktop_zip')).status).toBe(200);
    expect((await call(target, daemon, 'desktop_terminal')).status).toBe(200);
    expect(await refusalOf(call(target, daemon, 'desktop_unzip'))).toEqual([502, 'tool_not_advertised']);
    expect([daemon, shell, bare].map(({ commands }) => commands.map(({ tool }) => tool))).toEqual([
      ['desktop_zip'],
      ['desktop_terminal'],
      [],
    ]);
  });

  it('identity: the session first, then the first status, then the socket', async () => {
    const target = await start();
    const nobody = { device_id: 'unknown', device_name: '' };
    const claimed = await startDesktop(target, { device: nobody, status: { device_id: 'own-id', device_name: 'Own' } });
    await claimed.report({ device_id: 'another', host: 'elsewhere' });
    const byHost = await startDesktop(target, { device: { ...nobody, device_id: 'none' }, status: { host: 'hosty' } });
    const proven = await named(target, 'id-1', 'Proven', { device_id: 'own-id', device_name: 'Liar' });
    const { clients } = await health(target, proven);
    expect(clients).toMatchObject([
      { device_id: 'id-1', device_name: 'Proven' },
      { device_id: expect.stringMatching(/^ws-./), device_name: 'hosty' },
      { device_id: 'own-id', device_name: 'elsewhere' },
    ]);
    expect((await call(target, proven, 'desktop_terminal', { device: 'own-id' })).status).toBe(200);
    expect((await call(target, proven, 'desktop_terminal', { device: clients[1].device_id })).status).toBe(200);
    expect(claimed.commands[0]?.target_device_id).toBe('own-id');
    expect(byHost.commands[0]?.target_device_id).toBe(clients[1].device_id);
  });

  it('without the grant a desktop may describe itself, and nothing else; it is no target', async () => {
    const target = await start();
    const caller = await pair(target);
    const desktop = await startDesktop(target, { status: null });
    await loseGrant(target, desktop);
    await desktop.report();
    desktop.client.send('desktop', 'desktop.active_editor', { version: 1 });
    await desktop.settled();
    const asked = call(target, { headers: bearer(caller.token) }, 'desktop_terminal');
    expect(await refusalOf(asked)).toEqual([502, 'no_desktop']);
    for (const type of ['response', 'desktop.response', 'desktop.command', 'unknown']) {
      desktop.client.send('desktop', type, { request_id: 'x' }, `id-${type}`);
      expect((await desktop.client.next({ channel: 'system', type: 'error' })).payload, type).toMatchObject({
        message: 'Desktop grant expired for this device',
        error: 'permission_denied',
      });
    }
    expect(desktop.client.frames.filter(({ channel }) => channel !== 'pairing')).toEqual([]);
  });

  it('a description over 64 KiB is dropped, the one before stays', async () => {
    const target = await start();
    const desktop = await startDesktop(target, { script: silent });
    await desktop.report({ host: 'large', filler: 'x'.repeat(70_000) });
    desktop.client.send('desktop', 'workspace', { filler: 'ü'.repeat(40_000) });
    await desktop.settled();
    expect((await health(target, desktop)).host).toBe('box.local');
    const first = await startDesktop(target, { status: { filler: 'x'.repeat(70_000) } });
    expect((await health(target, first)).clients).toHaveLength(1);
  });
});
