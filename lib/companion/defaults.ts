import type { SafetySettings } from './types.ts';

const BLOCKLIST = `com.chase.sig.android com.wf.wellsfargomobile com.bankofamerica.digitalwallet
com.usaa.mobile.android.usaa com.konylabs.capitalone com.americanexpress.android.acctsvcs.us
com.discoverfinancial.mobile com.infonow.bofa uk.co.hsbc.hsbcukmobilebanking com.barclays.android.barclaysmobilebanking
com.monzo.android co.uk.getmondo co.revolut.app com.starlingbank.android com.venmo com.squareup.cash
com.paypal.android.p2pmobile com.coinbase.android co.mona.android com.lastpass.lpandroid com.agilebits.onepassword
com.x8bit.bitwarden com.dashlane.frozenaccount com.keepersecurity.passwordmanager com.bitwarden.authenticator
com.google.android.apps.authenticator2 com.authy.authy com.duosecurity.duomobile`;

const WORDS = 'send pay delete transfer confirm submit post publish buy purchase charge withdraw';

/** What a phone starts with: nothing granted, master toggle off (contract 03 §8.6). */
export const defaultSettings = (): SafetySettings => ({
  masterEnabled: false,
  messagesEnabled: false,
  flavor: 'sideload',
  unattended: false,
  blocklist: BLOCKLIST.split(/\s+/),
  destructiveVerbs: WORDS.split(' '),
  trustedVerbs: [],
  autoDisableMinutes: 30,
  confirmationTimeoutSeconds: 30,
  policy: 'unbound',
  capabilities: {},
});
