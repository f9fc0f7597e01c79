import { at } from '../kit/json.ts';
import { NO_WINDOWS, UNSUPPORTED, usageProblem } from './call.ts';
import { type Provider, type UsageWindow, withoutSlash } from './provider.ts';
import { percentOf, timeOf } from './values.ts';

const WINDOWS = { rolling: 'Session · 5h', weekly: 'Weekly', monthly: 'Monthly' };

export const opencodeGo: Provider = {
  id: 'opencode-go',
  displayName: 'OpenCode Go',
  async load({ credentials, call, bases }) {
    const token = credentials.key('OPENCODE_GO_API_KEY');
    if (token === null) return null;
    const base = withoutSlash(credentials.key('OPENCODE_GO_BASE_URL') ?? bases.opencodeGo);
    const { usage } = await call({ url: `${base}/usage`, token, headers: { 'user-agent': 'curl/8.4.0' } });
    if (typeof usage !== 'object' || usage === null) throw usageProblem(UNSUPPORTED);
    const windows: UsageWindow[] = [];
    for (const [id, label] of Object.entries(WINDOWS)) {
      const percent = percentOf(at(usage, id, 'percent'));
      if (percent === null) continue;
      windows.push({ id, label, used_percent: percent, reset_at: timeOf(at(usage, id, 'resetsAt')), detail: null });
    }
    if (windows.length === 0) throw usageProblem(NO_WINDOWS);
    return { source: 'provider_api', windows };
  },
};
