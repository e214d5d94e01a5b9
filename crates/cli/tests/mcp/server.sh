#!/usr/bin/env bash
# A server of the Model Context Protocol for tests, without any program but bash. The first argument is what is odd about it.
odd=$1
echo "starting, with the secret ${SECRET_KEY-unknown}" >&2
[ "$odd" = dead ] && { echo "no database" >&2; exit 3; }
[ "$odd" = mute ] && while read -r _; do :; done
[ "$odd" = junk ] && echo "Welcome!"
[ "$odd" = flood ] && while :; do echo "Welcome!"; done
[ "$odd" = family ] && { sleep 600 & echo "$! $$" > family.txt; }
tool() { printf '{"name":"%s","description":"%s","inputSchema":%s}' "$1" "$2" "$3"; }
text='{"type":"object","properties":{"text":{"type":"string"},"times":{"type":"integer"}},"required":["text"]}'
set='{"type":"object","properties":{"text":{"type":"string","pattern":"^(?!x)"},"tags":{"type":"array","items":{"type":"string"},"uniqueItems":true}},"required":["text"]}'
pair='[{"properties":{"text":{"type":"string"}},"required":["text"]},{"properties":{"n":{"type":"integer","minimum":0,"maximum":9}},"required":["n"]}]'
either='{"type":"object","oneOf":'$pair'}'
some='{"type":"object","anyOf":'$pair'}'
both='{"type":"object","allOf":'$pair'}'
named='{"$ref":"#/$defs/Args","$defs":{"Args":'$text'}}'
wanted='{"type":"object","properties":{"text":{"type":"string"}},"required":["text","n"]}'
then='{"type":"object","properties":{"text":{"enum":["a","b"]}},"required":["text"],"if":{"properties":{"text":{"const":"a"}}},"then":{"properties":{"n":{"type":"integer"}},"required":["n"]}}'
pattern='{"type":"object","patternProperties":{"^x_[a-z]$":{"type":"integer"}},"minProperties":1,"maxProperties":3}'
while IFS= read -r line; do
  id=
  [[ $line =~ \"id\":([0-9]+) ]] && id=${BASH_REMATCH[1]}
  said=
  [[ $line =~ \"text\":\"([^\"]*)\" ]] && said=${BASH_REMATCH[1]}
  reply() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
  block() { reply '{"content":[{"type":"text","text":"'"$1"'"}]}'; }
  case $line in
    *'"method":"initialize"'*)
      version=2025-06-18
      [ "$odd" = old ] && version=1999-01-01
      reply '{"protocolVersion":"'$version'","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"echo","version":"1.0"}}'
      # Whoever is asked must answer.
      [ "$odd" = storm ] && for i in {1..5000}; do echo '{"jsonrpc":"2.0","id":"e","method":"elicitation/create","params":{"message":"Your name?","requestedSchema":{"type":"object","properties":{}}}}'; done
      [ "$odd" = asks ] && echo '{"jsonrpc":"2.0","id":"p1","method":"ping"}' && echo '{"jsonrpc":"2.0","id":"p2","method":"roots/list"}' && echo '{"jsonrpc":"2.0","id":"p3","method":"elicitation/create","params":{}}'
      ;;
    *'"id":"p1","result":{}'*) pinged=yes ;;
    *'"id":"p2","error":{"code":-32601,'*) refused=yes ;;
    *'"id":"p3","error":{"code":-32601,"message":"elicitation/create is not served"}'*) silent=yes ;;
    *'"method":"server/discover"'*)
      case $odd in
        silent) ;;
        frail) echo "expected initialize" >&2; [ -e frail.txt ] || { echo once > frail.txt; exit 1; } ;;
        *) printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"Method not found"}}\n' "$id" ;;
      esac ;;
    *'"method":"tools/list"'*'"cursor":"two"'*)
      reply '{"tools":['"$(tool c 'On page two.' "$text")"']}' ;;
    *'"method":"tools/list"'*)
      case $odd in
        pages) reply '{"tools":['"$(tool b 'Another.' "$text"),$(tool a 'Says it again.' "$text")"'],"nextCursor":"two"}' ;;
        word) reply '"none"' ;;
        roots) reply '{"tools":['"$(tool either One. "$either"),$(tool some One. "$some"),$(tool both One. "$both"),$(tool named One. "$named"),$(tool wanted One. "$wanted"),$(tool then One. "$then"),$(tool pattern One. "$pattern"),$(tool bare One. '{"type":"object"}')"']}' ;;
        set) reply '{"tools":['"$(tool a 'Says it again.' "$set")"']}' ;;
        shop-*) reply '{"tools":['"$(tool cancel_order 'Cancels one.' "$text")"',{"name":"get_order","inputSchema":'"$text"',"annotations":{"readOnlyHint":true}}]}' ;;
        circle) reply '{"tools":['"$(tool a 'Says it again.' "$text")"'],"nextCursor":"one"}' ;;
        names) reply '{"tools":['"$(tool shell 'Not ours.' "$text"),$(tool 'a.b/c d' 'Odd.' "$text"),$(tool a_b_c_d 'Even.' "$text"),$(tool bad 'No object.' '{"type":"array"}'),$(tool mcp 'Taken.' "$text")"']}' ;;
        *) reply '{"tools":['"$(tool b 'Another.' "$text"),$(tool a 'Says it again.' "$text")"']}' ;;
      esac ;;
    *'"method":"tools/call"'*)
      case $odd in
        dies) echo "out of luck" >&2; exit 1 ;;
        shop-*)
          status=shipped
          [ "$said" = 2 ] && status=pending
          case $odd$line in
            *'"name":"cancel_order"'*) block "cancelled" ;;
            shop-json*) block '{\"id\": '"$said"', \"status\": \"'$status'\"}' ;;
            shop-records*) block 'Found 1 record(s):\n\n1. id: '"$said"'\n   status: '$status'\n' ;;
            shop-regex*) block "Order $said is $status." ;;
          esac ;;
        hangs) [[ $line == *'"name":"b"'* ]] && block "alive, and $(cat cancelled.txt)" ;;
        pings) for i in {1..5000}; do echo '{"jsonrpc":"2.0","id":"p","method":"ping"}'; done; block "still there" ;;
        bare) reply '["none"]' ;;
        fails) reply '{"content":[{"type":"text","text":"no such row"}],"isError":true}' ;;
        refuses) printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"not today"}}\n' "$id" ;;
        asks) block "pinged $pinged, refused $refused $silent" ;;
        wrong) printf '{"jsonrpc":"2.0","id":%s,"result":{}}\n' $((id + 1000)) "\"x$id\"" null '{"a":1}' ;;
        twice) block "first"; block "second" ;;
        endless) while :; do printf '%065536d' 0; done ;;
        big) printf '{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"%02000000d"}]}}\n' "$id" 0 ;;
        linked) reply '{"content":[{"type":"text","text":"see"},{"type":"resource_link","name":"a","uri":"file:///a"},{"type":"image","mimeType":"image/png","data":"AAAA"},{"type":"resource","resource":{"uri":"file:///b","text":"all of it"}}]}' ;;
        env) block "own ${OWN-none}, secret ${SECRET_KEY-none}, in ${PWD##*/}" ;;
        typed) reply '{"content":[{"type":"text","text":"{ \"n\": [1, 2] }"}],"structuredContent":{"n":[1,2]}}' ;;
        changes) echo '{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'; block "changed" ;;
        *) block "${odd:-echo}: $said" ;;
      esac ;;
    *'"method":"notifications/cancelled"'*) echo told > cancelled.txt ;;
  esac
done
