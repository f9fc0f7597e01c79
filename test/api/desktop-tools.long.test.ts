import { expect, it } from 'vitest';
import { call, newest, startDesktop } from '../support/desktop.ts';
import { describeMatrix } from '../support/relay.ts';

const LIMIT = 32 * 1024 * 1024;

describeMatrix('desktop tools over HTTP (contract 07 §2.3)', (start, runtime) => {
  it('carries arguments of 32 MiB and a screenshot of 30 MiB, 29 at the edge', async () => {
    const target = await start();
    const size = LIMIT;
    const desktop = await startDesktop(target, {
      script: ({ args }) => ({ ok: true, result: { received: String(args.content).length } }),
    });
    const frame = '{"content":""}'.length;
    const body = JSON.stringify({ content: 'x'.repeat(size - frame) });
    expect(body.length).toBe(size);
    const stored = await call(target, desktop, 'desktop_terminal', {}, { body });
    expect((await stored.json()).result).toEqual({ received: size - frame });
    // The frame around it fits into the 30 MiB of the edge (02 §1.1).
    const mebibytes = runtime === 'edge' ? 29 : 30;
    const image = 'aGVsbG8h'.repeat((mebibytes * 1024 * 1024) / 8);
    await desktop.report({ advertised_tools: ['desktop_screenshot'] });
    desktop.script = () => ({ ok: true, result: { image } });
    const shown = await (await call(target, desktop, 'desktop_screenshot')).json();
    expect(shown.result.image === image).toBe(true);
    expect((await newest(target, desktop)).result_summary).toBe(`[${image.length + '{"image":""}'.length} bytes]`);
  });
});
