import { expect, it } from 'vitest';
import { describeMatrix, pair } from '../support/relay.ts';

describeMatrix('GET /health (contract 01 §2)', (start) => {
  it('shows its fields without authentication', async () => {
    const target = await start();
    const { client } = await pair(target);
    const response = await target.fetch('/health');
    const health = await response.json();
    expect(health).toMatchObject({
      status: 'ok',
      version: '1.0.0',
      clients: 1,
      sessions: 1,
      readiness: { ready: true, state: 'ready', checks: { session_store: 'ok' } },
      secure_link: { enabled: false, status: 'disabled', reach: { state: 'disabled', status: 'disabled' } },
    });
    expect(health).not.toHaveProperty('secure_proxy');
    client.close();
  });
});
