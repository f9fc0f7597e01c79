import { describe, expect, it } from 'vitest';
import { DEVICE_PATHS } from '../../handlers/device-control.ts';
import { routes } from '../../handlers/routes.ts';
import { DEVICE_ROWS } from '../../lib/operations/device.ts';
import { fill, marked, send, start } from '../support/ingress-marker.ts';
import { attackOperatorRoutes, OPERATOR_ROUTES, operatorRequest } from '../support/operator-routes.ts';
import { exchange } from '../support/raw-socket.ts';

describe('a marked request is never local (contract 07 §4.3)', () => {
  it('is refused on every route that does more for the operator, for any client address', async () => {
    const target = await start();
    for (const address of ['192.0.2.7', '127.0.0.1', '::1', '', 'localhost']) {
      const headers = await marked(address);
      await attackOperatorRoutes(target, (route) =>
        exchange(target.port, operatorRequest(route, headers), route.method),
      );
    }
  });

  it('is served nothing without a bearer on any route but the open ones', async () => {
    const target = await start();
    const headers = { ...(await marked()), 'x-svc-operator': '1' };
    const served: string[] = [];
    const asked = [
      ...routes.filter(([, path]) => path !== DEVICE_PATHS).map(([method, path]) => [method, fill(path)]),
      ...DEVICE_ROWS.map(({ method, path }) => [method, path]),
    ] as [string, string][];
    for (const [method, path] of asked) {
      const sent = method === 'ALL' ? 'POST' : method;
      const { status } = await send(target, sent, path, headers, sent === 'GET' ? '' : '{}');
      if (status < 400) served.push(`${sent} ${path}`);
      // Public files, of which there is none by this name.
      else if (path.startsWith('/app/')) expect(status).toBe(404);
      else expect([401, 403, 426]).toContain(status);
    }
    // Nothing of what is posted to the app is read.
    expect(served.sort()).toEqual(['GET /health', 'GET /sessions/nonce', 'POST /app/share', 'POST /pairing']);
  });
});

describe('without a valid secret the marker means nothing (contract 07 §4.3)', () => {
  it('a local caller stays the operator, on every route', async () => {
    const target = await start();
    const wrong = { ...(await marked('192.0.2.7', true, 'another secret')) };
    for (const headers of [
      wrong,
      { ...wrong, 'x-svc-dashboard-proxy-secret': '' },
      { 'x-svc-proxy-peer': '192.0.2.7' },
    ]) {
      for (const route of OPERATOR_ROUTES) {
        target.relay.limiter.clear();
        const { status } = await exchange(target.port, operatorRequest(route, headers), route.method);
        expect({ path: route.path, status }).toEqual({ path: route.path, status: route.operator });
      }
    }
  });
});
