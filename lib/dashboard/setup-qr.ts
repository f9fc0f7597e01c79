import { RelayError } from '../errors.ts';

/** Path segment of the tab in which the QR code is shown. */
const TAB = /\/relay\/?$/;

/**
 * The text of the Setup QR ("Connect mobile app"), which gives a phone the address of the dashboard:
 * `{"dashboard_url":…}` (contract 07 §4.1). It holds no credentials: user info, query, fragment and the tab's segment
 * are left out.
 * @throws RelayError `invalid` unless `address` is an http(s) URL.
 */
export function setupQrText(address: string): string {
  const url = URL.canParse(address) ? new URL(address) : null;
  if (!url || !/^https?:$/.test(url.protocol)) {
    throw new RelayError('invalid', 'the address of the dashboard must be an http:// or https:// URL');
  }
  const base = url.pathname.replace(TAB, '').replace(/\/+$/, '');
  return JSON.stringify({ dashboard_url: url.origin + base });
}
