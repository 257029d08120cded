"""Characters of the Basic Multilingual Plane that JSON strings of MongoDB's Java library hold as they are, by Java 21 (Unicode 15).

Written by ``dev/java_json/record.py``: lengths of runs, by turns of those that are escaped and those that are not, as 16 bits each, compressed, in base 85.
"""

from __future__ import annotations

from typing import Final

RUNS: Final = (
    "c-nPTxo#9e5UuW>+1{DGjJ>wkHr@-o^0GE&Eo_VkkU%0LaA1K5fQST%O9Vv3B;-V7h`-=Bh)MVaa$dcu8809->glVFSFfsiC{JZ1Epg)"
    "gvLw=!wxklV*YAS7#+j3VFU6`n?_&JG?knaA?&jk0ziPMMMkZU(sliGv4c=VB$YoWQFh7$zcMdW`$~)=HwmhP2TV|LOd_CEe4o)_JKxG"
    "=32e3JnTXGDqPL?quEP2M!fleK3{nmKn7(qf=_1vPjK-&@cl0Rg9H3p2mv>mu^BPz%BqI_E6=wPobMk4(i$GL33!mw=I)X1_UPG2z@IP"
    "`1M$|}B`%&F`;BhuBTX?gn3i8)kQ*Ny4I_rN3*o_TOt%1wE*#JfP91eQ}^4B*O9PBkKI<YcEQ*Lc#vSq5fzD(srAo~;W%8UHC{b9xx!-"
    "lIlb^=T$Fw#(F1**W($W^D&G(M2qYp$kN!9JYYN8Q$H>yO%xu@4LcoT<|fqc_jbdX|3I~^<CK6hKEfccz}Hk<FgN_(FjgjvO)|Q)@{~a"
    "fcAC76^!c~8alLQb=LYnf^G_}vEjUjn*osoxnlh6k$2S#z!K#KA}?)4^6^j(khePSx8Pqpr4IxrsF7VT)WP|T`Vq5cr@`7uj7x6__vAK"
    "lkI{{5u8419an={|;;d?pSmD|Qo_1EuQf7Ur{WNEf1$yiN;|M-J!t*D;fwNWVMh}LZ{Dkfs@|Vi~Le5U;xq~P&#`^y;0tXJS&KO)d<fJ"
    "Lzv1-Cs${MQCX3AVT<ge)S#}@kx|0ft{&`>+SUO0J|1aO^!!<w|6#@xkSVioM<BG#vjy-s|m)?0U&(X#Hh7**M$31w1Nt>*6p|3l*Jk^"
    "2cGH?Zy_q65~EXB|h(J@(`}?bNC7`SxmWAKJU-$zbWd$5o5f*Jd7zan7aIR%ZSGmM9BcUuI4A)?AX&OVq-1Ad5hm+PmAc3@yI!?~&_ok"
    "Ugg5A$Ci!wZ=MMq2(eMA27edyw6uPEZ{0$w*p&>vHS+7sxi<"
)
